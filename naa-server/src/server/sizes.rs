//! The sizes of a session's queues, and the reduction of the configuration to the limits of a device.

use mrsp::{accelerator::SessionLimits, region::MAX_REGION_BYTES};
use verbs::{DeviceAttr, QpCap};

use crate::config::Config;

/// A session's send queue has room for the WRITEs of a response, for the work requests of a loop service, and for this
/// number of other work requests. The other work requests are the advertisement, liveness probes and the response of a
/// failed call.
const SPARE_SENDS: u32 = 8;
const RECEIVES: u32 = 4;
/// If the completion queue is short, the server reduces the number of unfinished work requests that a loop service may
/// have on a session. The number is not reduced below `LEAST_STREAM_SENDS`. If the completion queue is too short even
/// for `LEAST_STREAM_SENDS` such work requests on each session, the server accepts fewer sessions.
const LEAST_STREAM_SENDS: u32 = 32;
/// The maximum number of scatter-gather elements of one work request of a loop service.
pub const STREAM_ELEMENTS: u32 = 16;

/// Returns the maximum number of work requests that a loop service may have unfinished on a session.
pub fn stream_sends(config: &Config, device: &DeviceAttr) -> u32 {
    let others = u32::from(config.limits.max_regions.max(config.limits.max_slots)) + SPARE_SENDS;
    let others = others + further(config, device);
    // If the device's completion queue is too short for `config.max_sessions` sessions, this function reduces the
    // number of work requests, but not below `LEAST_STREAM_SENDS`. The server accepts fewer sessions only if this
    // reduction is not enough.
    let sessions = u32::try_from(config.max_sessions).unwrap_or(u32::MAX).max(1);
    let share = (device.max_cqe / sessions).saturating_sub(others + RECEIVES).max(LEAST_STREAM_SENDS);
    config.stream_sends.min(share).min(device.max_qp_wr.saturating_sub(others))
}

/// Returns the capacities of a session's queue pair.
pub fn queue_pair(config: &Config, device: &DeviceAttr) -> QpCap {
    // A work request of a loop service may have several scatter-gather elements, because its bytes may lie in several
    // ranges of memory.
    let max_sge = if config.stream_sends > 0 { device.max_sge.clamp(1, STREAM_ELEMENTS) } else { 1 };
    QpCap { max_send_wr: send_depth(config, device), max_recv_wr: RECEIVES, max_sge, late_acks: true }
}

/// Returns the maximum number of completions of one session that may be in the completion queue at the same time.
pub fn completions(config: &Config, device: &DeviceAttr) -> u32 {
    send_depth(config, device) + RECEIVES
}

fn send_depth(config: &Config, device: &DeviceAttr) -> u32 {
    let SessionLimits { max_regions, max_slots, .. } = config.limits;
    let stream = stream_sends(config, device);
    u32::from(max_regions.max(max_slots)) + further(config, device) + SPARE_SENDS + stream
}

/// Returns the number of WRITEs that a response may need beside one WRITE for each region. A region that is longer than
/// the device's longest message needs several WRITEs.
fn further(config: &Config, device: &DeviceAttr) -> u32 {
    let per_region = (MAX_REGION_BYTES - 1) / device.max_msg;
    let together = config.limits.max_session_bytes / device.max_msg;
    u32::try_from(together.min(u64::from(config.limits.max_regions) * per_region)).unwrap_or(u32::MAX)
}

/// Limits the configured numbers of regions and of layout entries to what the queues of the device can hold. A response
/// is one WRITE for each region, or several WRITEs for a long region.
pub fn limit_regions(config: &mut Config, device: &DeviceAttr) {
    let max_qp_wr = device.max_qp_wr;
    let spare = SPARE_SENDS + further(config, device);
    let most = u8::try_from(max_qp_wr.saturating_sub(spare)).unwrap_or(u8::MAX);
    if config.limits.max_regions > most {
        tracing::warn!(
            regions = most,
            asked = config.limits.max_regions,
            "the device's queue pairs hold {max_qp_wr} work requests, which is for fewer regions than asked for"
        );
        config.limits.max_regions = most;
    }
    config.limits.max_slots = config.limits.max_slots.min(most);
    // If the device's completion queue is too short for `config.max_sessions` sessions, this function reduces the
    // number of parameters that a layout may have. The server accepts fewer sessions only if this reduction is not
    // enough.
    let sessions = u32::try_from(config.max_sessions).unwrap_or(u32::MAX);
    if completions(config, device).saturating_mul(sessions) > device.max_cqe {
        config.limits.max_slots = config.limits.max_slots.min(config.limits.max_regions);
    }
}

/// Returns the maximum number of bytes that a session's regions take in addition to the sum of their sizes. Each region
/// takes whole pages, so it takes at most one page more than its size.
pub fn page_slack(config: &Config) -> u64 {
    u64::from(config.limits.max_regions) * region::page_size() as u64
}
