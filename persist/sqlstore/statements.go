package sqlstore

import (
	"strconv"
	"strings"
)

// columns of a record, in the order of row.fields; the clock comes last.
const columns = `ref_hash, seq, scope, id, named, created, op_key, method, target, header, omitted, body, fingerprint, ` +
	`key_life, attempts, first_sent, seen, not_before, parked, poll_url, last_status, last_error, ` +
	`state, status, answer_header, answer_body, truncated, reason, keep_body, keep_name, owed, ` +
	`owner, token, held_until, {now}`

const (
	isFree = `held_until <= {now}`
	// No claim, or that under which ClaimDue puts off a record that it cannot read.
	isOpen = `(` + isFree + ` OR owner = {nobody})`
	isHeld = `ref_hash = ? AND token = ? AND held_until > {now}`
	// Held, and not changed by a later call of the same store: see Store.after.
	isMine = isHeld + ` AND owner NOT BETWEEN ? AND ?`
	// The same of a row where no INSERT is known that may come.
	isOver = `owner NOT BETWEEN ? AND ? AND held_until > {now} AND sweep_at IS NULL`
	isDue  = `due_order IS NOT NULL AND ` + isFree + ` AND (state <> 0 OR not_before <= {now})`
	// A settled operation past both times is not there, one past the first is a name.
	isGone  = `state <> 0 AND owed = 0 AND ` + isFree + ` AND keep_body <= {now} AND keep_name <= {now}`
	isBare  = `state <> 0 AND owed = 0 AND ` + isFree + ` AND keep_body <= {now} AND keep_name > {now}`
	isWhole = `(state = 0 OR owed = 1 OR keep_body > {now})`
	// A name has no request; what is left of the answer is state and reason.
	bare = `op_key = {none}, method = {none}, target = {none}, header = NULL, omitted = NULL, body = NULL, ` +
		`key_life = 0, attempts = 0, first_sent = {never}, seen = {never}, not_before = {never}, parked = 0, ` +
		`poll_url = {none}, last_status = 0, last_error = {none}, ` +
		`status = 0, answer_header = NULL, answer_body = NULL, truncated = 0, keep_body = {never}`
	// What is left where an operation should leave and an INSERT may come. Its token is new, so that no statement that
	// has seen what was there before changes it. reason is who made it; it stays until what takes its place is settled.
	marker = `state = 4, reason = ?, keep_name = {never}, owed = 0, due_order = NULL, sweep_at = {late}, ` +
		`token = {next}, owner = ?, held_until = 0, ` + bare
	// Here an INSERT may come, from now on for as long as it can be late.
	expect = `sweep_at = CASE WHEN {operations}.sweep_at > {late} THEN {operations}.sweep_at ELSE {late} END`
	// Until when one may come, at most, where sweep_at has not passed: it may be that of an answer's retention.
	until = `{least}(sweep_at, {late})`
	// An answer's own time, or a later one until which it must stay. Too early a time costs a look at the row, no more.
	sweepAt = `sweep_at = CASE WHEN sweep_at IS NULL OR sweep_at <= ? THEN ? ELSE ` + until + ` END`

	inserts = `INSERT INTO {operations} (ref_hash, scope, id, named, created, op_key, method, target, header, omitted, body, ` +
		`fingerprint, key_life, attempts, first_sent, seen, not_before, parked, poll_url, last_status, last_error, ` +
		`due_order, owner, token, held_until`
	values     = `VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, {next}, `
	insert     = inserts + `) ` + values
	insertLate = inserts + `, sweep_at) ` + values
	// A request, and no answer; but an INSERT may come all the same.
	request = `named = ?, created = ?, op_key = ?, method = ?, target = ?, header = ?, omitted = ?, ` +
		`body = ?, fingerprint = ?, key_life = ?, attempts = ?, first_sent = ?, seen = ?, not_before = ?, parked = ?, ` +
		`poll_url = ?, last_status = ?, last_error = ?, due_order = ?, state = 0, status = 0, answer_header = NULL, ` +
		`answer_body = NULL, truncated = 0, keep_body = {never}, keep_name = {never}, owed = 0, ` +
		`sweep_at = CASE WHEN sweep_at > {now} THEN ` + until + ` END, `
	revive = `UPDATE {operations} SET scope = ?, id = ?, ` + request + `owner = ?, token = {next}, held_until = `
	take   = `UPDATE {operations} SET token = {next}, held_until = {now} + ?, owner = ? WHERE ref_hash = ? AND (` + isOpen + ` OR owner BETWEEN ? AND ?) AND `
)

// statements are the texts for one dialect and one set of tables.
type statements struct {
	begin, beginAgain, revive               string
	enqueue, reviveFree                     string
	withdraw, prevent                       string
	takePending, takeWhole                  string
	takeDue, lockDue, anyDue                string
	mark, replace, settle, settleName, free string
	putOff                                  string
	remove                                  string // of many, with two arrays
	removeHead, removeOne                   string // of many, as a list
	forget, seen, get, owned, standing      string
	sweepGone, sweepBare                    string
	notify                                  string
	harmless                                []string // what the store does to its tables, done to no row
	readable                                string
}

func (o Options) statements() statements {
	d := dialects[o.Dialect]
	returning, conflict := ` RETURNING `+columns, d.conflict
	if !d.returning {
		returning = ``
	}
	// sweep changes at most so many rows of those whose time has come. MariaDB would lock the whole table for an IN.
	sweep := func(del, set, which string) string {
		which = `sweep_at <= {now} AND ` + which
		chosen := `(SELECT ref_hash AS h FROM {operations} WHERE ` + which + ` ORDER BY sweep_at LIMIT ?`
		if d.skip {
			chosen += ` FOR UPDATE SKIP LOCKED`
		}
		chosen += `)`
		switch each := chosen + ` v STRAIGHT_JOIN {operations} o FORCE INDEX ({prefix}idx_ref) ON ref_hash = h`; {
		case d.skip && !d.gaps:
			return `WITH v AS MATERIALIZED ` + chosen + ` ` + del + ` {operations} ` + set + ` WHERE ref_hash IN (SELECT h FROM v)`
		case !d.gaps:
			return del + ` {operations} ` + set + ` WHERE ref_hash IN ` + chosen + ` AND ` + which
		case set == ``:
			return `DELETE o FROM ` + each + ` WHERE ` + which
		default:
			return `UPDATE ` + each + ` ` + set + ` WHERE ` + which
		}
	}
	s := statements{
		begin:      insert + `{now} + ?) ` + conflict + ` RETURNING owner, token, ` + d.slow,
		beginAgain: insertLate + `{now} + ?, {late}) ` + d.meet + expect + ` RETURNING owner, token, ` + d.slow,
		revive:     revive + `{now} + ? WHERE ref_hash = ? AND token = ? AND ` + isGone + returning,
		enqueue:    insert + `0) ` + conflict,
		reviveFree: revive + `0 WHERE ref_hash = ? AND ` + isGone,
		withdraw:   `UPDATE {operations} SET ` + marker + ` WHERE ref_hash = ? AND (owner BETWEEN ? AND ? AND state = 0 OR ` + isGone + `)`,
		prevent: `INSERT INTO {operations} (ref_hash, scope, id, named, created, op_key, method, target, fingerprint, key_life, ` +
			`attempts, first_sent, seen, not_before, parked, poll_url, last_status, last_error, state, owner, token, held_until, sweep_at) ` +
			`VALUES (?, ?, ?, 0, {never}, {none}, {none}, {none}, ?, 0, 0, {never}, {never}, {never}, 0, {none}, 0, {none}, 4, ` +
			`?, {next}, 0, {late}) ` + d.meet + expect + ` RETURNING owner, state`,

		takePending: take + `state = 0` + returning,
		takeWhole:   take + isWhole + returning,
		anyDue:      `SELECT 1 FROM {operations} WHERE ` + isDue + ` LIMIT 1`,

		mark: `UPDATE {operations} SET due_order = CASE WHEN owed = 1 OR (state = 0 AND ? = 0) THEN created END, ` +
			`attempts = ?, first_sent = ?, seen = ?, not_before = ?, parked = ?, poll_url = ?, last_status = ?, ` +
			`last_error = ?, held_until = {now} + ?, owner = ? WHERE ` + isMine,
		replace: `UPDATE {operations} SET ` + request + `held_until = {now} + ?, owner = ? WHERE ` + isMine,
		settle: `UPDATE {operations} SET state = ?, status = ?, answer_header = ?, answer_body = ?, truncated = ?, reason = ?, ` +
			`keep_body = ?, keep_name = ?, owed = ?, due_order = CASE WHEN ? = 1 THEN created END, ` + sweepAt +
			`, held_until = 0, owner = ? WHERE ` + isMine,
		settleName: `UPDATE {operations} SET state = ?, reason = ?, keep_name = ?, owed = 0, due_order = NULL, ` + sweepAt +
			`, held_until = 0, ` + bare + `, owner = ? WHERE ` + isMine,
		free:   `UPDATE {operations} SET held_until = 0, owner = ? WHERE ` + isMine,
		putOff: `UPDATE {operations} SET owner = {nobody} WHERE ` + isHeld,

		remove: `DELETE FROM {operations} o USING unnest(?::text::bytea[], ?::text::bigint[]) AS v (h, t) ` +
			`WHERE ref_hash = v.h AND token = v.t AND ` + isOver + ` RETURNING ref_hash`,
		removeHead: `DELETE FROM {operations} WHERE ` + isOver + ` AND (`,
		removeOne:  `(ref_hash = ? AND token = ?)`,

		forget: `UPDATE {operations} SET ` + marker + ` WHERE ref_hash = ? AND token = ? AND ` + isOpen,
		seen: `SELECT token, CASE WHEN ` + isOpen + ` THEN 1 ELSE 0 END, CASE WHEN ` + isGone + ` THEN 1 ELSE 0 END, ` +
			`CASE WHEN reason = ? THEN 1 ELSE 0 END, CASE WHEN state = 0 AND reason = {none} THEN 1 ELSE 0 END FROM {operations} WHERE ref_hash = ?`,
		get:   `SELECT ` + columns + ` FROM {operations} WHERE ref_hash = ?`,
		owned: `SELECT ` + columns + ` FROM {operations} WHERE ref_hash = ? AND owner = ?`,

		standing: `SELECT owner, token, CASE WHEN held_until > {now} THEN 1 ELSE 0 END FROM {operations} WHERE ref_hash = ?`,

		sweepGone: sweep(`DELETE FROM`, ``, isGone),
		sweepBare: sweep(`UPDATE`, `SET sweep_at = keep_name, `+bare, isBare),
		notify:    d.notify,
		harmless: []string{
			o.expand(`INSERT INTO {operations} ` + d.allColumns + ` SELECT * FROM {operations} WHERE 1 = 0`),
			o.expand(`UPDATE {operations} SET owed = owed WHERE 1 = 0`), o.expand(`DELETE FROM {operations} WHERE 1 = 0`),
			o.expand(d.tokenRight),
		},
		readable: `SELECT ` + columns + ` FROM {operations} WHERE 1 = 0`,
	}
	choose := `SELECT ref_hash AS h FROM {operations} WHERE ` + isDue + ` ORDER BY due_order, seq LIMIT ?`
	if d.skip {
		choose += ` FOR UPDATE SKIP LOCKED`
	}
	const give = `SET token = {next}, held_until = {now} + ?, owner = ? WHERE `
	switch {
	case !d.returning: // in a transaction: lockDue, then takeDue for each
		s.lockDue = choose
		s.takeDue = `UPDATE {operations} ` + give + `ref_hash = ?`
	case d.skip:
		s.takeDue = `WITH due AS MATERIALIZED (` + choose + `) UPDATE {operations} ` + give + `ref_hash IN (SELECT h FROM due)` + returning
	default:
		s.takeDue = `UPDATE {operations} ` + give + `ref_hash IN (` + choose + `)` + returning
	}
	for _, text := range []*string{
		&s.begin, &s.beginAgain, &s.revive, &s.enqueue, &s.reviveFree, &s.withdraw, &s.prevent, &s.takePending, &s.takeWhole,
		&s.takeDue, &s.lockDue, &s.anyDue, &s.mark, &s.replace, &s.settle, &s.settleName, &s.free, &s.putOff, &s.remove, &s.removeHead,
		&s.removeOne, &s.forget, &s.seen, &s.get, &s.readable, &s.owned, &s.standing, &s.sweepGone, &s.sweepBare, &s.notify,
	} {
		*text = o.expand(*text)
	}
	return s
}

// expand fills in the names of tables and what the dialect says its own way.
func (o Options) expand(text string) string {
	d := dialects[o.Dialect]
	none, nobody, least := `''`, `x'00000000000000000000000000000000'`, `LEAST`
	switch o.Dialect {
	case SQLite:
		none, least = `x''`, `min` // a text is no blob
	case PostgreSQL:
		nobody = `decode('00000000000000000000000000000000', 'hex')`
	}
	late := `(` + d.now + ` + ` + strconv.FormatInt(lateFor.Nanoseconds(), 10) + `)`
	text = strings.NewReplacer(`{now}`, d.now, `{late}`, late, `{next}`, d.token, `{least}`, least, `{none}`, none, `{nobody}`, nobody,
		`{never}`, `-9223372036854775808`).Replace(text)
	text = strings.NewReplacer(
		`{operations}`, o.table("operations"), `{schema}`, o.table("schema"), `{token}`, o.table("token"), `{channel}`, o.channel(),
		`{database}`, o.Schema, `{prefix}`, o.Prefix,
	).Replace(text)
	if d.numbered {
		text = numbered(text)
	}
	return text
}

// numbered turns ? into $1, $2 and so on; no text of ours has a ? in a literal.
func numbered(text string) string {
	var b strings.Builder
	n := 0
	for part := range strings.SplitSeq(text, "?") {
		if n > 0 {
			b.WriteString("$" + strconv.Itoa(n))
		}
		b.WriteString(part)
		n++
	}
	return b.String()
}

func (o Options) table(name string) string {
	if o.Schema != "" {
		return o.Schema + "." + o.Prefix + name
	}
	return o.Prefix + name
}

func (o Options) channel() string {
	if o.Schema != "" {
		return o.Schema + "_" + o.Prefix + "wake"
	}
	return o.Prefix + "wake"
}
