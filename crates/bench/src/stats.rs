//! Medians and their ratios.

/// The median: the middle value, or the mean of the two in the middle. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

/// The ratio of the medians of `values` and `base`; below 1 is less than the base. `None` where either has none, or the
/// base is 0.
pub fn ratio(values: &[f64], base: &[f64]) -> Option<f64> {
    match (median(values)?, median(base)?) {
        (_, 0.0) => None,
        (value, base) => Some(value / base),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_odd_even_and_no_values() {
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&[5.0]), Some(5.0));
        assert_eq!(median(&[]), None);
    }

    #[test]
    fn one_wild_turn_does_not_move_the_median() {
        assert_eq!(median(&[10.0, 11.0, 9000.0]), Some(11.0));
    }

    #[test]
    fn ratio_is_of_medians_not_the_median_of_ratios() {
        assert_eq!(ratio(&[2.0, 4.0, 60.0], &[1.0, 8.0, 2.0]), Some(2.0));
        assert_eq!(ratio(&[], &[1.0]), None);
        assert_eq!(ratio(&[1.0], &[]), None);
        assert_eq!(ratio(&[1.0], &[0.0]), None);
    }
}
