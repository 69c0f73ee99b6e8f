//! How large a session's queues are, and how the limits of a device reduce the configuration.

use mrsp::{naa::Limits, region::MAX_REGION_BYTES};
use verbs::{DeviceAttr, QpCap};

use crate::config::Config;

/// Work requests of a session beside one WRITE for each region: the advertisement, probes, a failure's response.
const SPARE_SENDS: u32 = 8;
const RECEIVES: u32 = 4;
/// A stream has room for at least so many work requests, even if fewer sessions fit then.
const LEAST_STREAM_SENDS: u32 = 32;
/// The most scatter-gather elements of a stream's work requests.
pub const STREAM_ELEMENTS: u32 = 16;

/// The number of work requests of a stream.
pub fn stream_sends(config: &Config, device: &DeviceAttr) -> u32 {
    let others = u32::from(config.limits.max_regions.max(config.limits.max_slots)) + SPARE_SENDS;
    let others = others + further(config, device);
    // A smaller number of them is preferred to a smaller number of sessions.
    let sessions = u32::try_from(config.max_sessions).unwrap_or(u32::MAX).max(1);
    let share = (device.max_cqe / sessions).saturating_sub(others + RECEIVES).max(LEAST_STREAM_SENDS);
    config.stream_sends.min(share).min(device.max_qp_wr.saturating_sub(others))
}

/// The capacities of a session's queue pair.
pub fn queue_pair(config: &Config, device: &DeviceAttr) -> QpCap {
    // The work requests of a stream gather segments, so they have several elements.
    let max_sge = if config.stream_sends > 0 { device.max_sge.clamp(1, STREAM_ELEMENTS) } else { 1 };
    QpCap { max_send_wr: send_depth(config, device), max_recv_wr: RECEIVES, max_sge, late_acks: true }
}

/// The most completions of a session that may wait at a time.
pub fn completions(config: &Config, device: &DeviceAttr) -> u32 {
    send_depth(config, device) + RECEIVES
}

fn send_depth(config: &Config, device: &DeviceAttr) -> u32 {
    let Limits { max_regions, max_slots, .. } = config.limits;
    let stream = stream_sends(config, device);
    u32::from(max_regions.max(max_slots)) + further(config, device) + SPARE_SENDS + stream
}

/// WRITEs beyond one for each region, which are needed for regions longer than a message may be.
fn further(config: &Config, device: &DeviceAttr) -> u32 {
    let per_region = (MAX_REGION_BYTES - 1) / device.max_msg;
    let together = config.limits.max_session_bytes / device.max_msg;
    u32::try_from(together.min(u64::from(config.limits.max_regions) * per_region)).unwrap_or(u32::MAX)
}

/// Limits regions to what the device can hold. A response is one WRITE for each region, or a few for a long one.
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
    // Fewer parameters in layouts are preferred to fewer sessions.
    let sessions = u32::try_from(config.max_sessions).unwrap_or(u32::MAX);
    if completions(config, device).saturating_mul(sessions) > device.max_cqe {
        config.limits.max_slots = config.limits.max_slots.min(config.limits.max_regions);
    }
}

/// The difference between accounting regions in whole pages and limiting their bytes.
pub fn page_slack(config: &Config) -> u64 {
    u64::from(config.limits.max_regions) * region::page_size() as u64
}
