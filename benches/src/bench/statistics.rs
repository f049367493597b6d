//! The median and the quartiles of samples.

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Spread {
    pub(crate) fn of(samples: impl IntoIterator<Item = f64>) -> Self {
        let mut samples: Vec<f64> = samples.into_iter().collect();
        samples.sort_by(f64::total_cmp);
        Self {
            low: quantile(&samples, 0.25),
            median: quantile(&samples, 0.5),
            high: quantile(&samples, 0.75),
        }
    }

    /// `0.83 (0.80–0.85)`
    pub(crate) fn shown(self, digits: usize) -> String {
        let Self { low, median, high } = self;
        format!("{median:.digits$} ({low:.digits$}–{high:.digits$})")
    }

    /// The spread of the ratios of two series, round by round.
    pub(crate) fn of_ratios(this: &[f64], that: &[f64]) -> Self {
        assert_eq!(this.len(), that.len(), "rounds are missing");
        Self::of(this.iter().zip(that).map(|(this, that)| this / that))
    }
}

/// The smallest of the sorted samples that at least this share of them does not exceed.
pub(crate) fn quantile(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted[rank.max(1) - 1]
}
