//! The longest single holds, with what their holders did.

use lockmeter_profile::{HolderTime, Loss, NextLock, SlowHold};

use crate::contention::interval::Builder;
use crate::contention::skeleton::types;
use crate::lock_codes::{kind_code, kind_mode_of};

impl Builder<'_> {
    pub(in crate::contention) fn add_slow_hold(&mut self, hold: &types::slow_hold) {
        let kind = kind_code(hold.kind_mode);
        let Some((hold_kind, mode)) = kind_mode_of(hold.kind_mode) else {
            return self.interval.losses.add(Loss::UnknownCode, 1);
        };
        let next_kind_mode = (hold.next.waited_ns != 0).then(|| kind_mode_of(hold.next.kind_mode)).flatten();
        let next = next_kind_mode.map(|(next_kind, next_mode)| {
            let next = &hold.next;
            let task = (next.tid != 0).then(|| self.task(next.tgid, &next.comm.map(i8::cast_unsigned)));
            NextLock {
                lock: self.likeliest(next.class, kind_code(next.kind_mode)),
                kind: next_kind,
                mode: next_mode,
                waited_ns: next.waited_ns,
                task,
                tid: next.tid,
            }
        });
        let slow = SlowHold {
            end_unix_ns: hold.end_ns.saturating_add(self.boot_unix_ns),
            total_ns: hold.total_ns,
            lock: self.likeliest(hold.class, kind),
            kind: hold_kind,
            mode,
            task: self.task(hold.tgid, &hold.comm.map(i8::cast_unsigned)),
            tid: hold.tid,
            site: if hold.stack == 0 { None } else { self.stack(hold.stack) },
            holder: HolderTime::from_parts(hold.spent_ns),
            next,
        };
        self.interval.slow_holds.push(slow);
    }
}
