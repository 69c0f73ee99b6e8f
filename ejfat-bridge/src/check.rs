//! The checks that decide which subscriptions are accepted.

use ejfat::ring::{BLOCK, Geometry, SubscribeRefusal, Subscription, call::Parameter};
use mrsp::{RegionFlags, RegionRequest};
use naa_server::{
    call::{Call, CallFailure},
    loop_service::SubscribingHost,
};

/// Decodes and checks the subscription of a call, and checks that the call's regions match the subscription. Returns a
/// [`SubscribeRefusal`] inside the outer `Ok` if the subscription is refused. Fails with a `CallFailure` if parameters
/// are missing, or if the output for the response is shorter than [`BLOCK`] bytes.
pub(crate) fn check_subscription(
    host: &SubscribingHost<'_>,
    call: &mut Call<'_>,
) -> Result<Result<Subscription, SubscribeRefusal>, CallFailure> {
    let mut parts = call.parts();
    let missing =
        || CallFailure::Arguments("the parameters of a subscription are missing: see the module ring".into());
    let subscription = parts.take_input(0).ok_or_else(missing)?;
    let credits = parts.take_input(1).ok_or_else(missing)?.len();
    let answer = parts.take_output(0).ok_or_else(missing)?.len();
    let descriptors = parts.take_output(1).ok_or_else(missing)?.len();
    let ring = parts.take_output(2).ok_or_else(missing)?.len();
    if answer < BLOCK {
        return Err(CallFailure::OutputTooSmall { output: 0, needed: Some(BLOCK as u64) });
    }
    let Some(block) = subscription.first_chunk::<BLOCK>() else {
        return Ok(Err(SubscribeRefusal::Malformed));
    };
    let subscription = match Subscription::decode(block) {
        Ok(subscription) => subscription,
        Err(malformed) => return Ok(Err(malformed.into())),
    };
    if !fit(subscription.geometry, [credits, descriptors, ring]) || !in_order(host.params) {
        return Ok(Err(SubscribeRefusal::Regions));
    }
    if overlap(host.params) {
        return Ok(Err(SubscribeRefusal::Overlap));
    }
    Ok(Ok(subscription))
}

/// Returns true if the inputs and outputs of `params` have the order of [`Parameter::ALL`]. The order is checked
/// because later code finds each parameter by its index.
fn in_order(params: &[RegionRequest]) -> bool {
    let flags = |parameter: Parameter| match parameter.is_input() {
        true => RegionFlags::INPUT,
        false => RegionFlags::OUTPUT,
    };
    params.iter().map(|param| param.flags).eq(Parameter::ALL.map(flags))
}

fn fit(geometry: Geometry, bytes: [usize; 3]) -> bool {
    bytes
        == [Parameter::Credits, Parameter::Descriptors, Parameter::Ring]
            .map(|parameter| parameter.bytes(geometry))
}

/// Returns true if two of the host's regions have common bytes, or if a region goes beyond the end of the address
/// space.
fn overlap(params: &[RegionRequest]) -> bool {
    let mut ranges: Vec<_> =
        params.iter().map(|p| (p.host.addr, p.host.addr.checked_add(u64::from(p.host.size)))).collect();
    ranges.sort_unstable();
    ranges.iter().any(|(_, end)| end.is_none())
        || ranges.windows(2).any(|pair| pair[0].1.is_some_and(|end| end > pair[1].0))
}

#[cfg(test)]
mod tests {
    use mrsp::{RemoteRegion, region::NaaAddress};

    use super::*;

    fn params(regions: &[(u64, u32)]) -> Vec<RegionRequest> {
        let region = |&(addr, size): &(u64, u32)| RegionRequest {
            flags: RegionFlags::OUTPUT,
            naa_addr: NaaAddress::default(),
            host: RemoteRegion { addr, rkey: 1, size },
        };
        regions.iter().map(region).collect()
    }

    #[test]
    fn regions_of_a_subscription_are_apart() {
        assert!(!overlap(&params(&[(0x3000, 0x1000), (0x1000, 0x1000), (0x2000, 0x1000)])));
        assert!(overlap(&params(&[(0x1000, 0x1001), (0x2000, 0x1000)])));
        assert!(overlap(&params(&[(0x1000, 64), (0x1000, 64)])));
        assert!(overlap(&params(&[(u64::MAX - 63, 64)])));
    }

    #[test]
    fn parameters_come_in_one_order() {
        let mut its = params(&[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]);
        assert!(!in_order(&its));
        its[..2].iter_mut().for_each(|param| param.flags = RegionFlags::INPUT);
        assert!(in_order(&its));
        its.swap(1, 2);
        assert!(!in_order(&its));
        assert!(!in_order(&its[..4]));
    }

    #[test]
    fn regions_are_as_long_as_the_geometry_says() {
        let geometry = Geometry::new(5, 128).unwrap();
        assert!(fit(geometry, [64 + 5 * 4, 8 * 64, 5 * 128]));
        assert!(!fit(geometry, [64 + 5 * 4, 5 * 64, 5 * 128]));
        assert!(!fit(geometry, [64 + 5 * 4, 8 * 64, 5 * 128 + 1]));
    }
}
