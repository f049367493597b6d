//! Spans of time that excuse something.

use super::Span;

/// Sorts the spans and joins those that overlap. So the last one that begins early enough decides.
pub(super) fn joined(mut spans: Vec<Span>) -> Vec<Span> {
    spans.sort_unstable_by_key(|span| span.from);
    spans.dedup_by(|span, before| {
        let meets = span.from <= before.to;
        if meets {
            before.to = before.to.max(span.to);
        }
        meets
    });
    spans
}

/// The last of these joined spans that overlaps this one.
pub(super) fn overlap(spans: &[Span], from: u64, to: u64) -> Option<&Span> {
    let end = spans.partition_point(|span| span.from <= to);
    spans[..end].last().filter(|span| span.to >= from)
}

pub(super) fn overlaps(spans: &[Span], from: u64, to: u64) -> bool {
    overlap(spans, from, to).is_some()
}
