//! Compares random logs with a forward replay that keeps all actions in one map.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use proptest::prelude::*;

use super::tests::{METADATA, PROTOCOL, each_live_batch, table_of};
use super::*;
use crate::actions::DeletionVectorDescriptor;
use crate::checkpoint::tests::writer::Log;

/// Whether the action is an add, its path, and its deletion vector (0: none).
type Action = (bool, u8, u8);
type Key = (u8, u8);

#[derive(Debug, Clone)]
struct Step {
    actions: Vec<Action>,
    has_checkpoint: bool,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let action = (any::<bool>(), 0u8..6, 0u8..3);
    let step = (proptest::collection::vec(action, 0..5), proptest::bool::weighted(0.25))
        .prop_map(|(actions, has_checkpoint)| Step { actions, has_checkpoint });
    proptest::collection::vec(step, 1..12)
}

fn line(is_add: bool, (path, vector): Key) -> String {
    let kind = if is_add { "add" } else { "remove" };
    // The same file has two spellings.
    let path = if is_add { format!("file:///t/p{path}") } else { format!("file:/t/p{path}") };
    let mut line = format!(
        r#"{{"{kind}":{{"path":"{path}","partitionValues":{{"p":"1"}},"size":10,"modificationTime":1,"dataChange":true"#
    );
    if vector > 0 {
        write!(line, r#","deletionVector":{{"storageType":"u","pathOrInlineDv":"v{vector}","sizeInBytes":1,"cardinality":1}}"#).unwrap();
    }
    line + "}}"
}

/// The last action of each key up to a version: true for an add.
type State = BTreeMap<Key, bool>;

fn states(steps: &[Step]) -> Vec<State> {
    let mut state = State::new();
    let replay = |step: &Step| {
        state.extend(step.actions.iter().map(|(is_add, path, vector)| ((*path, *vector), *is_add)));
        state.clone()
    };
    steps.iter().map(replay).collect()
}

fn write(table: &Log, steps: &[Step], states: &[State]) {
    let heads = [PROTOCOL.to_owned(), METADATA.to_owned()];
    for (version, step) in steps.iter().enumerate() {
        let actions = step.actions.iter().map(|(is_add, path, vector)| line(*is_add, (*path, *vector)));
        let head = if version == 0 { &heads[..] } else { &[] };
        let info = [r#"{"commitInfo":{}}"#.to_owned()];
        let lines: Vec<_> = head.iter().cloned().chain(actions).chain(info).collect();
        table.write(&format!("{version:020}.json"), &lines.join("\n"));
        if step.has_checkpoint {
            let rows = states[version].iter().map(|(key, is_add)| line(*is_add, *key));
            let top = [r#"{"checkpointMetadata":{"version":1}}"#.to_owned()].into_iter().chain(heads.clone());
            let name = format!("{version:020}.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json");
            table.write(&name, &top.chain(rows).collect::<Vec<_>>().join("\n"));
        }
    }
}

/// All live files in order: path, deletion vector, position.
fn files(snapshot: &Snapshot) -> Vec<(String, SourceId, u32)> {
    let mut found = Vec::new();
    each_live_batch(snapshot, |batch, rows| {
        for row in rows {
            let row = *row as usize;
            let vector =
                batch.deletion_vector_at(row).map_or(String::new(), DeletionVectorDescriptor::unique_id);
            found.push((format!("{}{vector}", batch.path.value(row)), batch.source, batch.row[row]));
        }
    })
    .unwrap();
    found
}

fn names(files: &[(String, SourceId, u32)]) -> BTreeSet<String> {
    files.iter().map(|(name, ..)| name.clone()).collect()
}

fn expected(state: &State) -> BTreeSet<String> {
    let live = state.iter().filter(|(_, is_add)| **is_add);
    live.map(|((path, vector), _)| {
        let vector = if *vector > 0 { format!("uv{vector}") } else { String::new() };
        format!("file:///t/p{path}{vector}")
    })
    .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    #[test]
    fn every_version_of_a_random_log_equals_a_forward_replay(steps in steps(), leaps in proptest::collection::vec(any::<bool>(), 12)) {
        let table = table_of(&[]);
        let states = states(&steps);
        write(&table, &steps, &states);
        let storage = Storage::local();
        let mut previous: Option<Arc<Snapshot>> = None;
        for (version, state) in states.iter().enumerate() {
            let at = TimeTravel::Version(version as i64);
            let fresh = Snapshot::load(&storage, table.root(), at, None).unwrap();
            let found = files(&fresh);
            prop_assert_eq!(names(&found), expected(state));
            prop_assert_eq!(found.len(), expected(state).len(), "no file comes twice");
            prop_assert!(found.is_sorted_by_key(|(_, source, row)| (*source, *row)), "places ascend");
            prop_assert_eq!(fresh.totals().unwrap(), Totals { files: found.len() as u64, size_bytes: 10 * found.len() as u64 });

            let again = Snapshot::load_identity(&storage, table.root(), fresh.identity(), &[]).unwrap();
            prop_assert_eq!(&files(&again), &found, "the identity fixes the order");

            let base = previous.as_ref().map(|snapshot| Base { snapshot, is_cached: version % 2 == 0 });
            let advanced = Snapshot::load(&storage, table.root(), at, base).unwrap();
            prop_assert_eq!(names(&files(&advanced)), expected(state));
            let again = Snapshot::load_identity(&storage, table.root(), advanced.identity(), &[]).unwrap();
            prop_assert_eq!(files(&again), files(&advanced), "also that of a continued snapshot");
            if leaps[version] {
                previous = Some(advanced);
            }
        }
    }
}
