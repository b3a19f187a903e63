//! Where the time of threads went, as messages.

use super::{code, proto};
use crate::interval::{CgroupId, LockId, StackId, TaskId};
use crate::sample::{Happened, Kind, Mode};
use crate::thread_time::{LockHolder, OpenWait, Parked, SampledWait, Sleep, Spin, SpinLoop, ThreadState, ThreadTime};

pub(super) fn time_to_proto(time: &ThreadTime) -> proto::ThreadTime {
    let spent = time.spent.iter();
    proto::ThreadTime {
        task: time.task.0,
        cgroup: time.cgroup.map(|id| id.0),
        threads: time.threads,
        spent: spent.map(|(state, ns)| proto::StateTime { state: state.code().into(), total_ns: *ns }).collect(),
    }
}

/// `None` if it has a state that this version does not know: its sum would be wrong without it.
pub(super) fn time_from_proto(time: &proto::ThreadTime) -> Option<ThreadTime> {
    let spent = time.spent.iter().map(|spent| Some((state(spent.state)?, spent.total_ns)));
    Some(ThreadTime {
        task: TaskId(time.task),
        cgroup: time.cgroup.map(CgroupId),
        threads: time.threads,
        spent: spent.collect::<Option<_>>()?,
    })
}

pub(super) fn sleep_to_proto(sleep: &Sleep) -> proto::Sleep {
    proto::Sleep {
        task: sleep.task.0,
        counted_as: sleep.counted_as.code().into(),
        reason: sleep.reason.code().into(),
        site: sleep.site.map(|id| id.0),
        looks: sleep.looks,
        estimate_ns: sleep.estimate_ns,
        variance_ns2: sleep.variance_ns2,
        at_rest: sleep.at_rest,
        lock: sleep.lock.map(|id| id.0),
    }
}

pub(super) fn sleep_from_proto(sleep: &proto::Sleep) -> Option<Sleep> {
    Some(Sleep {
        task: TaskId(sleep.task),
        counted_as: state(sleep.counted_as)?,
        reason: state(sleep.reason)?,
        lock: sleep.lock.map(LockId),
        at_rest: sleep.at_rest,
        site: sleep.site.map(StackId),
        looks: sleep.looks,
        estimate_ns: sleep.estimate_ns,
        variance_ns2: variance(sleep.variance_ns2),
    })
}

const fn variance(of_file: f64) -> f64 {
    if of_file.is_finite() { of_file.max(0.0) } else { 0.0 }
}

fn wait_to_proto(wait: SampledWait) -> proto::SampledWait {
    proto::SampledWait {
        happened: wait.happened.code().into(),
        lock: wait.lock.0,
        kind: wait.kind.code().into(),
        mode: wait.mode.code().into(),
        instance: wait.instance,
    }
}

fn wait_from_proto(wait: &proto::SampledWait) -> Option<SampledWait> {
    Some(SampledWait {
        happened: code(wait.happened).and_then(Happened::from_code)?,
        lock: LockId(wait.lock),
        kind: code(wait.kind).and_then(Kind::from_code)?,
        mode: code(wait.mode).and_then(Mode::from_code)?,
        instance: wait.instance,
    })
}

pub(super) fn parked_to_proto(parked: &Parked) -> proto::Parked {
    proto::Parked {
        task: parked.task.0,
        cgroup: parked.cgroup.map(|id| id.0),
        wait: Some(wait_to_proto(parked.wait)),
        site: parked.site.map(|id| id.0),
        looks: parked.looks,
        estimate_ns: parked.estimate_ns,
        variance_ns2: parked.variance_ns2,
    }
}

pub(super) fn parked_from_proto(parked: &proto::Parked) -> Option<Parked> {
    Some(Parked {
        task: TaskId(parked.task),
        cgroup: parked.cgroup.map(CgroupId),
        wait: wait_from_proto(parked.wait.as_ref()?)?,
        site: parked.site.map(StackId),
        looks: parked.looks,
        estimate_ns: parked.estimate_ns,
        variance_ns2: variance(parked.variance_ns2),
    })
}

pub(super) fn spin_to_proto(spin: &Spin) -> proto::Spin {
    proto::Spin {
        task: spin.task.0,
        cgroup: spin.cgroup.map(|id| id.0),
        how: spin.how.code().into(),
        wait: spin.wait.map(wait_to_proto),
        is_part: spin.is_part,
        site: spin.site.map(|id| id.0),
        samples: spin.samples,
        estimate_ns: spin.estimate_ns,
        variance_ns2: spin.variance_ns2,
    }
}

pub(super) fn spin_from_proto(spin: &proto::Spin) -> Option<Spin> {
    Some(Spin {
        task: TaskId(spin.task),
        cgroup: spin.cgroup.map(CgroupId),
        how: code(spin.how).and_then(SpinLoop::from_code)?,
        wait: match &spin.wait {
            Some(wait) => Some(wait_from_proto(wait)?),
            None => None,
        },
        is_part: spin.is_part,
        site: spin.site.map(StackId),
        samples: spin.samples,
        estimate_ns: spin.estimate_ns,
        variance_ns2: variance(spin.variance_ns2),
    })
}

pub(super) fn open_wait_to_proto(wait: &OpenWait) -> proto::OpenWait {
    proto::OpenWait {
        task: wait.task.0,
        tid: wait.tid,
        reason: wait.reason.code().into(),
        lock: wait.lock.0,
        kind: wait.kind.code().into(),
        mode: wait.mode.code().into(),
        instance: wait.instance,
        site: wait.site.map(|id| id.0),
        age_ns: wait.age_ns,
        is_older: wait.is_older,
        is_timed: wait.is_timed,
        holder: wait.holder.map(|holder| proto::LockHolder {
            task: holder.task.0,
            tid: holder.tid,
            state: holder.state.map_or(0, |state| state.code().into()),
            site: holder.site.map(|id| id.0),
        }),
        deadlock: wait.deadlock,
        ended_holder: wait.ended_holder,
        is_cut: wait.is_cut,
    }
}

pub(super) fn open_wait_from_proto(wait: &proto::OpenWait) -> Option<OpenWait> {
    let holder = wait.holder.as_ref().map(|holder| LockHolder {
        task: TaskId(holder.task),
        tid: holder.tid,
        state: state(holder.state),
        site: holder.site.map(StackId),
    });
    Some(OpenWait {
        task: TaskId(wait.task),
        tid: wait.tid,
        reason: state(wait.reason)?,
        lock: LockId(wait.lock),
        kind: code(wait.kind).and_then(Kind::from_code)?,
        mode: code(wait.mode).and_then(Mode::from_code)?,
        instance: wait.instance,
        site: wait.site.map(StackId),
        age_ns: wait.age_ns,
        is_older: wait.is_older,
        is_timed: wait.is_timed,
        is_cut: wait.is_cut,
        holder,
        ended_holder: wait.ended_holder,
        deadlock: wait.deadlock,
    })
}

fn state(number: i32) -> Option<ThreadState> {
    code(number).and_then(ThreadState::from_code)
}
