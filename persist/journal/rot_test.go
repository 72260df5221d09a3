package journal

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/samekey/samekey/internal/crashfs"
	"github.com/samekey/samekey/persist"
)

// TestUnreadableTogether: records that the disk does not give wait for their minute at the same time, and hold up neither
// each other nor what can be read.
func TestUnreadableTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		disk := crashfs.New(1)
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		for i := range 4 {
			require.NoError(t, j.Release(ctx, begin(t, j, i)))
		}
		disk.FailName(crashfs.Read, segmentName(1), 1, -1, syscall.EIO)
		require.ErrorIs(t, j.Compact(ctx), syscall.EIO)
		time.Sleep(61 * time.Second)
		require.NoError(t, j.Compact(ctx))
		require.Len(t, j.Report().Damage, 4)
		for i := range 4 {
			begin(t, j, i)
		}
		require.NoError(t, j.Close())
	})
}

// TestDamageIsSeenToAtOnce: a record that turns out to be damaged blocks its name no longer than a compaction takes, in
// the segment in use, too.
func TestDamageIsSeenToAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		disk := crashfs.New(1)
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		require.NoError(t, j.Release(ctx, begin(t, j, 1)))
		a := lazyAnswer(40)
		a.Lazy = false
		require.NoError(t, j.Settle(ctx, begin(t, j, 2), a))
		begin(t, j, 3)
		rot(t, disk, where(j, 1).put)
		rot(t, disk, where(j, 2).ans)
		j.compacting.Lock()
		for _, i := range []int{1, 2} {
			_, err = j.Begin(ctx, numbered(i))
			require.ErrorAs(t, err, new(*DamagedError))
		}
		j.compacting.Unlock()
		time.Sleep(time.Second)
		begin(t, j, 1)
		e, err := j.Begin(ctx, numbered(2))
		require.NoError(t, err)
		require.False(t, e.New)
		require.Nil(t, e.Answer)
		require.NotZero(t, e.Claim.Token)
		require.Len(t, j.Report().Damage, 2)
		require.NoError(t, j.Close())
		require.Empty(t, checkSim(t, disk).report.Damage)
	})
}

// TestReadFailsOnce: a record that the disk gives again is due again.
func TestReadFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		disk := crashfs.New(1)
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		require.NoError(t, j.Release(ctx, begin(t, j, 1)))
		disk.FailName(crashfs.Read, segmentName(1), 1, 2, syscall.EIO)
		_, err = j.Get(ctx, numbered(1).Ref)
		require.ErrorIs(t, err, syscall.EIO)
		time.Sleep(time.Second)
		es, err := j.ClaimDue(ctx, 1)
		require.NoError(t, err)
		require.Len(t, es, 1)
		require.Empty(t, j.Report().Damage)
		require.NoError(t, j.Close())
	})
}

// TestOpenOnFullDisk: neither a torn tail nor damage keeps a journal from opening and settling where there is no space to
// set anything aside; damaged bytes are kept as soon as there is.
func TestOpenOnFullDisk(t *testing.T) {
	ctx := context.Background()
	for _, damaged := range []bool{false, true} {
		t.Run(fmt.Sprint("damaged ", damaged), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				disk := crashfs.New(1)
				j, err := openSim(disk, tiny)
				require.NoError(t, err)
				for i := range 3 {
					begin(t, j, i)
				}
				l := where(j, 2).put // the last: a tail
				if damaged {
					l = where(j, 1).put
				}
				image := disk.Kill()
				require.NoError(t, j.Close())
				_ = image.Remove(segmentName(2)) // that was prepared, perhaps
				kept := rot(t, image, l)
				image.SetSpace(0)
				for range 2 {
					j, err = openSim(image, tiny)
					require.NoError(t, err)
					r := j.Report()
					require.NotEmpty(t, r.Notes)
					require.Len(t, append(r.Damage, r.Cut...), 1)
					require.Empty(t, append(r.Damage, r.Cut...)[0].Quarantine)
					e, err := j.Claim(ctx, numbered(0).Ref)
					require.NoError(t, err)
					require.NoError(t, j.Mark(ctx, e.Claim, persist.Progress{Attempts: 2}))
					begin(t, j, 10)
					next := image.Kill()
					require.NoError(t, j.Close())
					if image = next; !damaged {
						break
					}
					image.SetSpace(0)
					require.Len(t, checkSim(t, image).report.Damage, 1)
					j, err = openSim(image, tiny)
					require.NoError(t, err)
					e, err = j.Claim(ctx, numbered(10).Ref)
					require.NoError(t, err)
					require.NoError(t, j.Settle(ctx, e.Claim, persist.Answer{State: persist.Succeeded}))
					require.NoError(t, j.Close())
				}
				image.SetSpace(-1)
				j, err = openSim(image, tiny)
				require.NoError(t, err)
				time.Sleep(3 * time.Minute)
				if damaged {
					require.Equal(t, kept, image.Bytes(j.Report().Damage[0].Quarantine))
				}
				rec, err := j.Get(ctx, numbered(0).Ref)
				require.NoError(t, err)
				require.Equal(t, 2, rec.Progress.Attempts)
				require.NoError(t, j.Close())
				require.Empty(t, checkSim(t, image).report.Damage)
			})
		})
	}
}

// TestSpaceReturnsToADamagedJournal: opened on a full disk, it keeps the damaged bytes and leaves the damaged segment once
// there is space, without being opened anew.
func TestSpaceReturnsToADamagedJournal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		disk := crashfs.New(1)
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		for i := range 3 {
			begin(t, j, i)
		}
		image := disk.Kill()
		_ = image.Remove(segmentName(2)) // that was prepared, perhaps
		kept := rot(t, image, where(j, 1).put)
		require.NoError(t, j.Close())
		image.SetSpace(0)
		j, err = openSim(image, tiny)
		require.NoError(t, err)
		time.Sleep(5 * time.Minute)
		require.Empty(t, j.Report().Damage[0].Quarantine)
		image.SetSpace(-1)
		time.Sleep(3 * time.Minute)
		require.Equal(t, kept, image.Bytes(j.Report().Damage[0].Quarantine))
		require.Empty(t, checkSim(t, image.Kill()).report.Damage, "compacted")
		for _, i := range []int{0, 2} {
			_, err := j.Get(ctx, numbered(i).Ref)
			require.NoError(t, err)
		}
		require.NoError(t, j.Close())
	})
}

// TestDamageDoesNotKeepTheDiskFull: compaction makes space although there is none to set damaged bytes aside, and they are
// kept once there is.
func TestDamageDoesNotKeepTheDiskFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := context.Background()
		disk := crashfs.New(1)
		j, err := openSim(disk, tiny)
		require.NoError(t, err)
		require.NoError(t, j.Release(ctx, begin(t, j, 0)))
		var claims []persist.Claim
		for filled(j).seg < 3 {
			claims = append(claims, begin(t, j, 1+len(claims)))
		}
		put := where(j, 0).put
		kept := rot(t, disk, put)
		disk.FailName(crashfs.Write, fmt.Sprintf("quarantine-%010d-%010d.bin", put.seg, put.off), 1, -1, syscall.ENOSPC)
		for _, c := range claims {
			require.NoError(t, j.Settle(ctx, c, persist.Answer{State: persist.Succeeded}))
		}
		require.NoError(t, j.Compact(ctx))
		d := j.Report().Damage
		require.Len(t, d, 1)
		require.Empty(t, d[0].Quarantine)
		begin(t, j, 0)
		disk.Heal()
		time.Sleep(2 * time.Minute)
		require.Equal(t, kept, disk.Bytes(j.Report().Damage[0].Quarantine))
		require.NoError(t, j.Close())
	})
}

// TestDamagedWhileHeld: the request of an operation that somebody is sending turns out to be damaged. Its name is not given
// to another as long as it is held, and its outcome is kept.
func TestDamagedWhileHeld(t *testing.T) {
	ctx := context.Background()
	hour := time.Now().Add(time.Hour)
	for name, c := range map[string]struct {
		end  func(j *Journal, c persist.Claim) error
		want string
	}{
		"released": {func(j *Journal, c persist.Claim) error { return j.Release(ctx, c) }, absent},
		"gone": {func(j *Journal, c persist.Claim) error {
			return j.Settle(ctx, c, persist.Answer{State: persist.Succeeded})
		}, absent},
		"gone, lazy": {func(j *Journal, c persist.Claim) error {
			return j.Settle(ctx, c, persist.Answer{State: persist.Succeeded, Lazy: true})
		}, absent},
		"kept": {func(j *Journal, c persist.Claim) error {
			return j.Settle(ctx, c, persist.Answer{State: persist.Rejected, KeepBody: hour})
		}, "tomb rejected"},
		"kept, lazy": {func(j *Journal, c persist.Claim) error {
			return j.Settle(ctx, c, persist.Answer{State: persist.Rejected, KeepBody: hour, KeepName: hour.Add(-1), Lazy: true})
		}, "tomb rejected"},
		"replaced": {func(j *Journal, c persist.Claim) error {
			rec := numbered(1)
			rec.Key = "second"
			if err := j.Replace(ctx, c, rec); err != nil {
				return err
			}
			return j.Release(ctx, c)
		}, describe(func() persist.Record { r := numbered(1); r.Key = "second"; return r }())},
	} {
		t.Run(name, func(t *testing.T) {
			disk := crashfs.New(1)
			j, err := openSim(disk, tiny)
			require.NoError(t, err)
			claim := begin(t, j, 1)
			rot(t, disk, where(j, 1).put)
			for range 2 {
				_, err = j.Begin(ctx, numbered(1))
				require.ErrorAs(t, err, new(*DamagedError))
				require.ErrorIs(t, j.Forget(ctx, numbered(1).Ref), persist.ErrBusy)
				require.NoError(t, j.Compact(ctx))
			}
			require.ErrorIs(t, j.Mark(ctx, claim, persist.Progress{Attempts: 2}), errLost)
			es, err := j.ClaimDue(ctx, 1)
			require.NoError(t, err)
			require.Empty(t, es)
			require.NoError(t, c.end(j, claim))
			require.ErrorIs(t, j.Release(ctx, claim), persist.ErrClaimLost)
			require.NoError(t, j.Flush(ctx))
			crashed := disk.Crash(1)
			require.NoError(t, j.Compact(ctx))
			if c.want == absent {
				require.Zero(t, j.Stats().LiveBytes)
			}
			for _, f := range []*crashfs.FS{crashed, disk.Kill()} {
				j2, err := openSim(f, tiny)
				require.NoError(t, err)
				rec, err := j2.Get(ctx, numbered(1).Ref)
				require.Equal(t, c.want, describe0(rec, err))
				require.NoError(t, j2.Close())
			}
			rec, err := j.Get(ctx, numbered(1).Ref)
			require.Equal(t, c.want, describe0(rec, err))
			e, err := j.Begin(ctx, numbered(1))
			require.NoError(t, err)
			require.Equal(t, c.want == absent, e.New)
			require.NoError(t, j.Close())
		})
	}
}
