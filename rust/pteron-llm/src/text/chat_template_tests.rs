//! Templates that came with models, and hostile ones.

use super::*;
use pteron_core::ErrorKind;

fn rendered(source: &str, messages: &[Message]) -> Result<String> {
    ChatTemplate::new(source, BTreeMap::from([("bos_token".into(), "<s>".into())]))?.render(messages, "{}")
}

#[test]
fn texts_are_those_of_jinja_in_python() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/folder/expected.json");
    let expected: Value = serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap();
    let said = [Message::new("user", " <a> & 'b' ")];
    for case in expected["templates"].as_array().unwrap() {
        let source = case["source"].as_str().unwrap();
        assert_eq!(rendered(source, &said).unwrap(), case["text"].as_str().unwrap(), "{source}");
    }
}

#[test]
fn the_present_day_is_known() {
    let year = rendered("{{ strftime_now('%Y') }}", &[]).unwrap();
    assert!(year.parse::<u32>().unwrap() >= 2026, "{year}");
    assert!(rendered("{{ strftime_now('%Q') }}", &[]).unwrap_err().to_string().contains("%Q"));
}

#[test]
fn hostile_templates_are_errors() {
    let doubling = "{% set x = 'x' * 1000 %}".to_string() + &"{% set x = x ~ x %}".repeat(60) + "{{ x }}";
    let calls = "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}";
    let nested = "[".repeat(100_000);
    for source in [
        doubling.as_str(),
        calls,
        "{{ 'x' * 1000000000000 }}",
        "{% for a in range(1000000) %}{% for b in range(1000000) %}{% endfor %}{% endfor %}",
        "{{ range(100000000000) | list }}",
        "{% include 'x' %}",
        "{{ messages[0].content.nothing() }}",
        &format!("{{{{ {nested} }}}}"),
        "{% if %}",
        "{{ 'x'.center(1000000000000) }}",
        "{{ '%1000000000000d' | format(1) }}",
        "{{ [1] | tojson(indent=1000000000000, sort=3) }}",
    ] {
        let error = rendered(source, &[Message::new("user", "x")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Program, "{source:.60}: {error}");
    }
}
