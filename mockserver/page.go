package mockserver

import (
	"embed"
	"net/http"
	"strconv"
	"time"
)

//go:embed page
var pageFiles embed.FS

// addPage serves the page for people, which needs no network but this server's.
func (e *Engine) addPage(mux *http.ServeMux) {
	files := http.FileServerFS(pageFiles)
	page := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src data:; frame-ancestors 'none'")
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
	mux.Handle("GET /_mock/page/", http.StripPrefix("/_mock", page))
	index := func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/page/" // what FileServer gives index.html for
		page.ServeHTTP(w, r)
	}
	mux.HandleFunc("GET /_mock/{$}", index)
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /_mock/state", e.getState)
}

// commandState is a command with its attempts, as the assertions group them.
type commandState struct {
	Name      string `json:"name"`
	Operation string `json:"operation"`
	Effects   int    `json:"effects"`
	Final     bool   `json:"final"` // the last attempt got a final answer
	Requests  []row  `json:"requests"`
}

// getState is all that the page shows, in one answer. Parameter last: at most so many requests, the newest ones.
func (e *Engine) getState(w http.ResponseWriter, r *http.Request) {
	all := e.Commands()
	if last, err := strconv.Atoi(r.FormValue("last")); err == nil && last >= 0 {
		all = all[max(0, len(all)-last):]
	}
	commands := []commandState{}
	for _, g := range groups(all) {
		s := commandState{Name: g.name, Operation: g.lines[0].Operation, Effects: g.effects(), Final: g.last().final()}
		for _, line := range g.lines {
			s.Requests = append(s.Requests, line.row())
		}
		commands = append(commands, s)
	}
	reply(w, http.StatusOK, map[string]any{
		"profile": e.profile.Name, "now": e.Now().Format(time.RFC3339Nano),
		"totals": e.Totals(), "faults": e.faultStates(), "commands": commands,
	})
}
