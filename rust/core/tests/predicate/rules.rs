//! Rules against an oracle that compares values: a rule is bound only if it is exact, and selects exactly the files for
//! which it is true, or fails.

use std::sync::Arc;

use deltalog::Error;
use deltalog::actions::{Metadata, PartitionColumn, PartitionTuple};
use deltalog::checkpoint::{RowGroupBounds, ValueBounds};
use deltalog::predicate::{BoundRule, Rule, RuleVerdicts};
use proptest::prelude::*;
use serde_json::json;

use crate::choices::Choices;
use crate::conditions::{Condition, draw_condition};
use crate::files::draw_table;
use crate::values::Type;

fn metadata(schema_string: String, partition_columns: Vec<String>) -> Arc<Metadata> {
    Arc::new(Metadata { schema_string: Some(schema_string), partition_columns, ..Metadata::default() })
}

fn parsed(condition: &str) -> Result<Rule, String> {
    let properties =
        [("country", "de"), ("tenant", "7"), ("quote", "it's")].map(|(n, v)| (n.to_owned(), v.to_owned()));
    Rule::parse(&[condition.to_owned()], &properties)
}

/// Binds a rule to a table with a data column `x` and a partition column `c`, `C` or `other`.
fn bound(data_type: &str, condition: &str) -> Result<Arc<BoundRule>, String> {
    let field = |name: &str, data_type: serde_json::Value, metadata: serde_json::Value| json!({"name": name, "type": data_type, "nullable": true, "metadata": metadata});
    let collated = json!({"__COLLATIONS": {"k": "icu.UNICODE_CI"}});
    let own = if data_type == "collated" {
        field("c", json!("string"), collated)
    } else {
        field("c", json!(data_type), json!({}))
    };
    let fields = json!([
        field("x", json!("long"), json!({})),
        own,
        field("other", json!("string"), json!({})),
        field("s", json!({"type": "struct", "fields": [field("c", json!("string"), json!({}))]}), json!({}))
    ]);
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    let metadata = metadata(schema, vec!["c".into(), "other".into()]);
    parsed(condition)?.bind(&metadata).map_err(|error| error.detail().unwrap_or_default().to_owned())
}

fn tuples(values: &[[Option<&str>; 2]]) -> PartitionColumn {
    let tuple = |values: &[Option<&str>; 2]| {
        let values = values.iter().map(|value| value.map(Box::from)).collect();
        Arc::new(PartitionTuple { values, json: b"{}".as_slice().into(), logged_json: None })
    };
    let keys: Vec<u32> = (0..values.len() as u32).collect();
    PartitionColumn { dictionary: Arc::new(values.iter().map(tuple).collect()), keys: keys.into() }
}

/// Whether a file with this value of `c` belongs to the rule; `None` if the rule is undecided.
fn is_inside(data_type: &str, condition: &str, value: Option<&str>) -> Option<bool> {
    let rule = bound(data_type, condition).unwrap_or_else(|reason| panic!("{condition}: {reason}"));
    let column = tuples(&[[value, Some("o")]]);
    match rule.select(&column, vec![0], &mut RuleVerdicts::default()) {
        Ok(rows) => {
            assert!(rows.is_empty() || rule.may_keep(&column.dictionary[0]));
            Some(!rows.is_empty())
        }
        Err(Error::RuleRefused { .. }) => {
            assert!(rule.may_keep(&column.dictionary[0]), "an undecided file is looked at");
            None
        }
        Err(other) => panic!("{other}"),
    }
}

#[test]
fn conditions_decide_partition_values_as_spark_compares_them() {
    for (data_type, condition, inside, outside) in [
        ("string", "c = 'eu'", vec![Some("eu")], vec![Some("EU"), Some("eu "), Some("e"), None, Some("")]),
        ("string", "c <> 'eu'", vec![Some("us"), Some("EU")], vec![Some("eu"), None]),
        ("string", "NOT c = 'eu'", vec![Some("us")], vec![Some("eu"), None]),
        ("string", "c IS NULL", vec![None, Some("")], vec![Some("eu"), Some("null")]),
        ("string", "c IS NOT NULL", vec![Some("eu")], vec![None, Some("")]),
        ("string", "NOT (c <=> 'eu')", vec![Some("us"), None], vec![Some("eu")]),
        ("string", "c = NULL", vec![], vec![Some("eu"), None]),
        ("string", "NOT (c = NULL)", vec![], vec![Some("eu"), None]),
        ("string", "c IN ('a', NULL)", vec![Some("a")], vec![Some("b"), None]),
        ("string", "c NOT IN ('a', NULL)", vec![], vec![Some("a"), Some("b"), None]),
        ("string", "c LIKE 'e%'", vec![Some("eu"), Some("e")], vec![Some("Eu"), Some("us"), None]),
        ("string", "c NOT LIKE 'e%'", vec![Some("us")], vec![Some("eu"), None]),
        (
            "string",
            "c BETWEEN 'a' AND 'b'",
            vec![Some("a"), Some("az"), Some("b")],
            vec![Some("ba"), Some("B")],
        ),
        ("string", "c > 'é'", vec![Some("ü"), Some("😀")], vec![Some("é"), Some("z")]),
        ("string", "C = recipient.country", vec![Some("de")], vec![Some("fr"), None]),
        ("string", "c = Recipient.quote", vec![Some("it's")], vec![Some("its")]),
        ("string", "true", vec![Some("eu"), None], vec![]),
        ("string", "c = 'a' OR c IS NULL", vec![Some("a"), None], vec![Some("b")]),
        ("string", "c = 'a' OR other = 'o'", vec![Some("b"), None], vec![]),
        ("string", "c = 'a' AND other = 'p'", vec![], vec![Some("a"), None]),
        ("integer", "c = recipient.tenant", vec![Some("7"), Some("007"), Some("+7")], vec![Some("8"), None]),
        ("integer", "c > 1.5", vec![Some("2")], vec![Some("1"), None]),
        ("long", "c < 9007199254740993", vec![Some("9007199254740992")], vec![Some("9007199254740993")]),
        (
            "decimal(10,2)",
            "c = 1.5",
            vec![Some("1.50"), Some("1.5"), Some("150E-2")],
            vec![Some("1.51"), None],
        ),
        ("decimal(38,20)", "c > 0", vec![Some("1E-20")], vec![Some("0E-20"), Some("-1")]),
        ("boolean", "c", vec![Some("true"), Some("TRUE")], vec![Some("false"), None]),
        ("boolean", "NOT c", vec![Some("false")], vec![Some("true"), None]),
        ("date", "c >= date '2026-01-01'", vec![Some("2026-01-01")], vec![Some("2025-12-31"), None]),
        ("date", "c = '2026-01-01'", vec![Some("2026-01-01"), Some("2026-1-1")], vec![Some("2026-01-02")]),
        (
            "timestamp",
            "c >= '2026-01-01T00:00:00Z'",
            vec![
                Some("2026-01-01T00:00:00.000000Z"),
                Some("2026-01-01T01:00:00+01:00"),
                Some("2026-02-01 00:00:00"),
            ],
            vec![Some("2025-12-31T23:59:59.999999Z"), Some("2025-12-01 00:00:00"), None],
        ),
        (
            "timestamp_ntz",
            "c >= TIMESTAMP_NTZ '2026-01-01 00:00:00'",
            vec![Some("2026-01-01 00:00:00")],
            vec![Some("2025-12-31 23:59:59.999999"), None],
        ),
        ("binary", "c IS NOT NULL", vec![Some("x")], vec![None]),
        ("double", "c IS NULL", vec![None, Some("")], vec![Some("1.5")]),
        ("integer", "c IS NULL", vec![Some("__HIVE_DEFAULT_PARTITION__")], vec![Some("1")]),
    ] {
        for (values, expected) in [(inside, true), (outside, false)] {
            for value in values {
                assert_eq!(
                    is_inside(data_type, condition, value),
                    Some(expected),
                    "{condition} for {value:?}"
                );
            }
        }
    }
}

#[test]
fn a_value_that_readers_may_take_for_another_one_fails_instead_of_being_decided() {
    for (data_type, condition, value) in [
        ("integer", "c = 7", "seven"),
        ("integer", "c = 7", " 7"),
        ("integer", "c <> 7", "7.5"),
        ("integer", "c <> 7", "1e2"),
        ("integer", "c <> 7", "99999999999"),
        ("byte", "c <> 7", "128"),
        ("integer", "c IS NULL", "seven"),
        ("decimal(4,2)", "c > 1", "1.005"),
        ("decimal(4,2)", "c > 1", "100"),
        ("boolean", "c", "yes"),
        ("boolean", "NOT c", "0"),
        ("date", "c <> date '2026-01-01'", "2026-01"),
        ("date", "c <> date '2026-01-01'", "2026-01-01 00:00:00"),
        ("date", "c <> date '2026-01-01'", "2026-02-30"),
        ("timestamp", "c >= '2026-01-01T00:00:00Z'", "2026-01-01 05:00:00"),
        ("timestamp", "c >= '2026-01-01T00:00:00Z'", "2026-01-01T00:00:00.0000001Z"),
        ("timestamp_ntz", "c >= '2026-01-01'", "2026-01-01T00:00:00Z"),
        ("string", "c IS NULL", "__HIVE_DEFAULT_PARTITION__"),
        ("string", "c <> 'eu'", "__HIVE_DEFAULT_PARTITION__"),
    ] {
        assert_eq!(is_inside(data_type, condition, Some(value)), None, "{condition} for {value}");
        if data_type == "string" {
            let of_file =
                ValueBounds { min: value.into(), max: value.into(), has_nulls: false, is_text: true };
            let bounds = RowGroupBounds { partition_values: vec![Some(of_file), None], stats: None };
            assert!(bound(data_type, condition).unwrap().may_match_row_group(&bounds), "{condition}");
        }
    }
    // The rest of the condition decides.
    assert_eq!(is_inside("integer", "c = 7 AND other = 'p'", Some("seven")), Some(false));
    assert_eq!(is_inside("integer", "c = 7 OR other = 'o'", Some("seven")), Some(true));
    assert_eq!(is_inside("string", "c = 'eu'", Some("__HIVE_DEFAULT_PARTITION__")), Some(false));
}

#[test]
fn a_condition_that_partition_values_do_not_decide_exactly_is_refused() {
    for (data_type, condition) in [
        ("string", ""),
        ("string", "c ="),
        ("string", "c"),
        ("string", "'eu'"),
        ("string", "NULL"),
        ("string", "x = 1"),
        ("string", "c = 'eu' OR x = 1"),
        ("string", "c = 'eu' OR true OR x = 1"),
        ("string", "true OR absent = 'a'"),
        ("string", "absent = 'a'"),
        ("string", "s.c = 'a'"),
        ("string", "t.c = 'a'"),
        ("string", "c = other"),
        ("string", "upper(c) = 'EU'"),
        ("string", "c || 'x' = 'eux'"),
        ("string", "CAST(c AS INT) = 1"),
        ("string", "c = 1"),
        ("string", "c = DATE '2026-01-01'"),
        ("string", "c LIKE '%u'"),
        ("string", "c LIKE 'e_'"),
        ("string", "c LIKE 'a%' ESCAPE '!'"),
        ("string", "c LIKE 'a\\\\b%'"),
        ("string", "c RLIKE 'e'"),
        ("string", "c = 'it''s'"),
        ("string", "c = recipient.absent"),
        ("string", "c = recipient.country.x"),
        ("string", "c = current_user()"),
        ("string", "recipient.country = 'de'"),
        ("string", "'a' = 'a'"),
        ("string", "(c = 'a') = true"),
        ("string", "c IS TRUE"),
        ("string", "c IN (SELECT 1)"),
        ("string", "c IN ('a', x)"),
        ("string", "c = 'a'; DROP TABLE t"),
        ("collated", "c = 'a'"),
        ("char(3)", "c = 'a'"),
        ("integer", "c = 'seven'"),
        ("integer", "c = recipient.country"),
        ("integer", "c IN (1, --2,\n3)"),
        ("integer", "c = 16777217F"),
        ("decimal(10,2)", "c = '1.5'"),
        ("decimal(10,2)", "c = 1.5D"),
        ("decimal(10,2)", "c > 1.005"),
        ("float", "c = 1.5"),
        ("double", "c > 0"),
        ("double", "c IN (1.5)"),
        ("boolean", "c = 1"),
        ("date", "c > TIMESTAMP '2026-01-01 00:00:00'"),
        ("date", "c > '2026-01-01 10:00:00'"),
        ("date", "c > 5"),
        ("timestamp", "c > '2026-01-01 00:00:00'"),
        ("timestamp", "c > TIMESTAMP '2026-01-01'"),
        ("timestamp", "c > DATE '2026-01-01'"),
        ("timestamp", "c > '2026-01-01T00:00:00.1234567Z'"),
        ("timestamp_ntz", "c > '2026-01-01T00:00:00Z'"),
        ("timestamp_ntz", "c > TIMESTAMP '2026-01-01 00:00:00'"),
        ("binary", "c = 'a'"),
    ] {
        let reason = bound(data_type, condition).map(|_| ()).expect_err(condition);
        assert!(!reason.is_empty() && reason.is_ascii(), "{condition}: {reason}");
    }
    let many = vec!["c = 'a' AND other = 'b'"; 600].join(" OR ");
    assert!(bound("string", &many).is_err());
    assert!(Rule::parse(&[], &[]).is_err());
    // Without the columns of a table, when a grant is given.
    for condition in ["'a' = 'a'", "recipient.country = 'de'", "c = 'a' OR 1 < 2", "NULL <=> NULL"] {
        assert!(parsed(condition).is_err(), "{condition}");
    }
    assert!(Rule::parse(&["c = 'a' ".repeat(20_000)], &[]).is_err());
}

#[test]
fn partition_columns_are_found_by_the_name_that_keys_their_values() {
    // The log would have no value of `C`, which is null for the reader of this log.
    let schema = json!({"type": "struct", "fields": [{"name": "c", "type": "string", "nullable": true, "metadata": {}}]});
    let rule = parsed("c IS NULL").unwrap();
    assert!(rule.bind(&metadata(schema.to_string(), vec!["C".into()])).is_err());
    assert!(rule.bind(&metadata(schema.to_string(), vec!["c".into()])).is_ok());
    let field = |name: &str| json!({"name": name, "type": "string", "nullable": true, "metadata": {}});
    let twice = json!({"type": "struct", "fields": [field("c"), field("C")]}).to_string();
    assert!(parsed("C = 'a'").unwrap().bind(&metadata(twice.clone(), vec!["c".into()])).is_err());
    assert!(parsed("c = 'a'").unwrap().bind(&metadata(twice.clone(), vec!["c".into()])).is_ok());
    assert!(parsed("c = 'a'").unwrap().bind(&metadata(twice, vec!["C".into(), "c".into()])).is_err());
    assert!(rule.bind(&metadata("{".into(), vec!["c".into()])).is_err());
    assert!(
        rule.bind(&Arc::new(Metadata { partition_columns: vec!["c".into()], ..Metadata::default() }))
            .is_err()
    );
}

/// A schema in whose data and log the columns `one` and `two` have the names `names`.
fn mapped(names: [&str; 2], data_type: &str) -> Arc<Metadata> {
    let field = |(name, physical): (&str, &str)| {
        json!({"name": name, "type": data_type, "nullable": true,
            "metadata": {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": 1}})
    };
    let fields: Vec<_> = names.into_iter().zip(["one", "two"]).map(field).collect();
    let schema = json!({"type": "struct", "fields": fields}).to_string();
    let mode = ("delta.columnMapping.mode".to_owned(), "name".to_owned());
    let metadata = Arc::unwrap_or_clone(metadata(schema, names.map(str::to_owned).to_vec()));
    Arc::new(Metadata { configuration: [mode].into_iter().collect(), ..metadata })
}

#[test]
fn a_rule_means_the_same_columns_in_versions_in_which_they_have_other_names() {
    let rule = parsed("c = 'eu'").unwrap();
    let column = tuples(&[[Some("eu"), Some("x")], [Some("x"), Some("eu")]]);
    let inside = |metadata: &Arc<Metadata>, names: &Arc<Metadata>| {
        let bound = rule.bind_named(metadata, names)?;
        bound.select(&column, vec![0, 1], &mut RuleVerdicts::default()).map(|rows| (rows, bound.key()))
    };
    let [latest, swapped] = [mapped(["c", "d"], "string"), mapped(["d", "c"], "string")];
    assert_eq!(inside(&latest, &latest).unwrap().0, [0]);
    assert_eq!(inside(&swapped, &latest).unwrap().0, [0], "the column that is named d there");
    assert_eq!(inside(&swapped, &swapped).unwrap().0, [1]);
    assert_eq!(inside(&latest, &latest).unwrap().1, inside(&swapped, &latest).unwrap().1);
    assert_ne!(inside(&latest, &latest).unwrap().1, inside(&swapped, &swapped).unwrap().1);
    // Before column mapping, the names in the log are the physical ones.
    let unmapped = mapped(["one", "two"], "string");
    let unmapped = Arc::new(Metadata { configuration: Vec::new(), ..Metadata::clone(&unmapped) });
    assert_eq!(inside(&unmapped, &latest).unwrap().0, [0]);
    let without = Metadata { partition_columns: vec!["c".into()], ..Metadata::clone(&swapped) };
    for other in [
        mapped(["c", "d"], "long"),
        Arc::new(without),
        metadata(r#"{"type":"struct","fields":[]}"#.into(), vec!["c".into()]),
        Arc::new(Metadata { schema_string: Some("{".into()), ..Metadata::clone(&latest) }),
    ] {
        assert!(matches!(inside(&other, &latest), Err(Error::RuleRefused { .. })), "{other:?}");
        assert!(rule.known(&other, &latest).is_none());
    }
    // The latest version does not decide it, but says which column it is about.
    let unpartitioned = Arc::new(Metadata { partition_columns: Vec::new(), ..Metadata::clone(&latest) });
    assert!(inside(&unpartitioned, &unpartitioned).is_err());
    assert_eq!(inside(&swapped, &unpartitioned).unwrap().0, [0]);
    let held = rule.bind_named(&swapped, &latest).unwrap();
    assert!(Arc::ptr_eq(&held, &rule.known(&swapped, &latest).unwrap()));
    drop(held);
    assert!(rule.known(&swapped, &latest).is_none(), "the cache of a table keeps it, and nothing else");
}

#[test]
fn the_key_depends_on_conditions_and_on_the_properties_that_they_use() {
    let key = |conditions: &[&str], properties: &[(&str, &str)]| {
        let conditions: Vec<String> = conditions.iter().map(ToString::to_string).collect();
        let properties: Vec<_> = properties.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Rule::parse(&conditions, &properties).unwrap().key()
    };
    let of_country = key(&["c = recipient.country"], &[("country", "de")]);
    assert_eq!(of_country, key(&["c = recipient.country"], &[("country", "de"), ("other", "x")]));
    for other in [
        key(&["c = recipient.country"], &[("country", "fr")]),
        key(&["c = 'de'"], &[]),
        key(&["c = recipient.country", "c = 'a'"], &[("country", "de")]),
        key(&["c = recipient.a"], &[("a", "de")]),
    ] {
        assert_ne!(of_country, other);
    }
    assert_ne!(key(&["c = 'a'", "c = 'b'"], &[]), key(&["c = 'b'", "c = 'a'"], &[]));
    assert_eq!(parsed("c = recipient.quote").unwrap().text(), r"(`c` = 'it\'s')");
}

#[test]
fn several_conditions_are_joined_by_or() {
    let conditions = ["c = 'a'".to_owned(), "c = 'b'".to_owned()];
    let schema = json!({"type": "struct", "fields": [{"name": "c", "type": "string", "nullable": true, "metadata": {}}]});
    let rule = Rule::parse(&conditions, &[]).unwrap();
    let metadata = metadata(schema.to_string(), vec!["c".into()]);
    let bound = rule.bind(&metadata).unwrap();
    assert!(Arc::ptr_eq(&bound, &rule.bind(&metadata).unwrap()), "it is bound once");
    let column = tuples(&[[Some("a"), None], [Some("b"), None], [Some("c"), None], [None, None]]);
    let mut verdicts = RuleVerdicts::default();
    assert_eq!(bound.select(&column, vec![0, 1, 2, 3], &mut verdicts).unwrap(), [0, 1]);
    // A dictionary that has grown, and another one.
    let grown = tuples(&[[Some("x"), None], [Some("b"), None]]);
    assert_eq!(bound.select(&grown, vec![0, 1], &mut verdicts).unwrap(), [1]);
    assert!(bound.select(&grown, vec![7], &mut verdicts).is_err(), "a row without a tuple is undecided");
}

fn check(numbers: &[u32]) {
    let mut choices = Choices::new(numbers);
    let table = draw_table(&mut choices);
    let metadata = metadata(table.schema_string(), table.partition_columns());
    let batch = table.batch();
    for _ in 0..3 {
        let drawn: Vec<Condition> =
            (0..=choices.below(2)).map(|_| draw_condition(&mut choices, &table, 2)).collect();
        let texts: Vec<String> =
            drawn.iter().map(|condition| condition.sql(&mut choices, &table.columns)).collect();
        let used: Vec<usize> = drawn.iter().flat_map(Condition::columns).collect();
        let has_type =
            |types: &[Type]| used.iter().any(|column| types.contains(&table.columns[*column].data_type));
        let is_of_partitions = used.iter().all(|column| table.columns[*column].is_partition);
        let bound =
            Rule::parse(&texts, &[]).map_err(|_| ()).and_then(|rule| rule.bind(&metadata).map_err(|_| ()));
        let Ok(bound) = bound else {
            assert!(!is_of_partitions || has_type(&[Type::Float, Type::Double]), "refused {texts:?}");
            continue;
        };
        assert!(is_of_partitions, "bound {texts:?}");
        let all: Vec<u32> = (0..table.files.len() as u32).collect();
        let inside: Vec<u32> = all
            .iter()
            .copied()
            .filter(|file| {
                let row = &table.files[*file as usize].rows[0];
                drawn.iter().any(|condition| condition.truth(row) == Some(true))
            })
            .collect();
        let mut decided = Vec::new();
        for file in &all {
            match bound.select(&batch.partitions, vec![*file], &mut RuleVerdicts::default()) {
                Ok(rows) => decided.extend(rows),
                // The log does not say in which zone a timestamp is.
                Err(_) => assert!(has_type(&[Type::Timestamp]), "undecided {texts:?}"),
            }
        }
        assert!(decided.iter().all(|file| inside.contains(file)), "wider than {texts:?}");
        match bound.select(&batch.partitions, all, &mut RuleVerdicts::default()) {
            Ok(rows) => assert_eq!(rows, inside, "{texts:?}"),
            Err(_) => assert!(has_type(&[Type::Timestamp]), "undecided {texts:?}"),
        }
        for file in inside {
            let file = &table.files[file as usize];
            assert!(bound.may_match_row_group(&file.as_row_group(&table.columns)), "unread for {texts:?}");
        }
    }
}

proptest! {
    #![proptest_config(crate::cases(2))]

    #[test]
    fn a_rule_selects_exactly_the_files_for_which_it_is_true(numbers in prop::collection::vec(any::<u32>(), 400)) {
        check(&numbers);
    }

    #[test]
    fn no_text_makes_a_rule_panic(sql in "(c|other|recipient|`|'|\"|\\\\|[0-9]|\\.|NOT|IN|IS|NULL|LIKE|BETWEEN|AND|OR|CAST|AS|DATE|[ (),=<>!%_+*-]|\\PC){0,30}") {
        let _ = bound("string", &sql);
    }
}
