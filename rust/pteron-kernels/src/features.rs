//! Which operators a cargo feature leaves out when it is off.
//!
//! The names are a text, `features.txt`, because a reference to the tables would bring the code along. A test
//! compares it with the tables and writes it where `make bless` sets `PTERON_BLESS`.

const NAMES: &str = include_str!("features.txt");

/// The feature that this binary was built without and that an operator (`aten::sort.values`) belongs to.
pub fn missing_feature(operator: &str) -> Option<&'static str> {
    let mut lines = NAMES.lines().filter_map(|line| line.split_once(": "));
    let (feature, _) = lines.find(|(_, names)| names.split(' ').any(|name| name == operator))?;
    (!is_on(feature)).then_some(feature)
}

/// Was the crate built with a feature?
pub fn is_on(feature: &str) -> bool {
    match feature {
        "complex" => cfg!(feature = "complex"),
        "convolution" => cfg!(feature = "convolution"),
        "fourier" => cfg!(feature = "fourier"),
        "image" => cfg!(feature = "image"),
        "linear_algebra" => cfg!(feature = "linear_algebra"),
        "pooling" => cfg!(feature = "pooling"),
        "quantized" => cfg!(feature = "quantized"),
        "random" => cfg!(feature = "random"),
        "sorting" => cfg!(feature = "sorting"),
        "special_functions" => cfg!(feature = "special_functions"),
        "training" => cfg!(feature = "training"),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operator::Operator;
    use std::collections::BTreeSet;

    fn names<'a>(tables: impl Iterator<Item = &'a Operator>) -> BTreeSet<String> {
        tables.map(|row| row.name().to_string()).collect()
    }

    #[test]
    #[cfg(feature = "complex")]
    fn the_text_has_the_names_of_the_tables() {
        let all = |tables: &'static [&'static [Operator]]| tables.iter().copied().flatten();
        let mut text = String::new();
        for (feature, tables) in crate::ops::OPTIONAL.iter().filter(|(feature, _)| !feature.is_empty()) {
            let found = names(all(tables));
            assert!(is_on(feature), "the tests are run with all features");
            text += &format!("{feature}: {}\n", found.into_iter().collect::<Vec<_>>().join(" "));
        }
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/src/features.txt");
        if std::env::var("PTERON_BLESS").as_deref() == Ok("1") {
            std::fs::write(file, &text).unwrap();
        }
        let stored = std::fs::read_to_string(file).unwrap();
        assert!(stored == text, "features.txt is out of date: make bless");
        assert_eq!(text.lines().count(), 11);
    }

    #[test]
    fn operators_of_features_that_are_on_miss_nothing() {
        for name in crate::operator_names() {
            assert_eq!(missing_feature(&name), None);
        }
        assert_eq!(missing_feature("aten::nothing.out"), None);
        assert!(NAMES.contains("aten::sort.values"));
    }
}
