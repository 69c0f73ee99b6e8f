//! Families of metrics as OpenMetrics text for Prometheus.

use std::fmt;

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeLabelValue, EncodeMetric, text},
    metrics::{TypedMetric, counter::ConstCounter},
    registry::Registry,
};

/// Returns a function that makes the text of what `collector` has at the time of a request.
pub(crate) fn text(
    prefix: &'static str,
    collector: impl Collector,
) -> impl Fn() -> String + Send + Sync + 'static {
    let mut registry = Registry::with_prefix(prefix);
    registry.register_collector(Box::new(collector));
    move || {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = text::encode(&mut out, &registry);
        out
    }
}

/// Encodes a metric without labels.
pub(crate) fn metric(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    value: impl EncodeMetric,
) -> fmt::Result {
    value.encode(encoder.encode_descriptor(name, help, None, value.metric_type())?)
}

/// Encodes metrics that differ in their labels.
pub(crate) fn family<M: EncodeMetric + TypedMetric, V: EncodeLabelValue, const N: usize>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    samples: impl IntoIterator<Item = ([(&'static str, V); N], M)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, M::TYPE)?;
    samples.into_iter().try_for_each(|(labels, value)| value.encode(family.encode_family(&labels)?))
}

/// Encodes counters that differ in one label.
pub(crate) fn counters(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    label: &'static str,
    samples: impl IntoIterator<Item = (impl EncodeLabelValue, u64)>,
) -> fmt::Result {
    let counter = |(which, value)| ([(label, which)], ConstCounter::new(value));
    family(encoder, name, help, samples.into_iter().map(counter))
}
