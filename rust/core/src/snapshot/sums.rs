//! The totals of a version count its live files, whatever sizes the commits state.

use ::parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::tests::each_live_batch;
use super::*;
use crate::checkpoint::tests::writer::{Log, UUID, parquet, schema};
use crate::checkpoint::tests::{metadata_row, protocol_row};

#[derive(Debug, Clone, Copy)]
enum Layout {
    Classic,
    MultiPart,
    Sidecars,
    Json,
}

/// The size that an action states.
#[derive(Debug, Clone, Copy)]
enum Stated {
    Size,
    Nothing,
    Wrong,
}

/// (is an add, path, deletion vector or 0, the stated size of a remove)
type Action = (bool, usize, usize, Stated);

/// Files of the checkpoint: those with even numbers, each third one with a deletion vector.
const FILES: usize = 400;

fn size_of_path(path: usize) -> usize {
    // Several files have the same size.
    1000 + path % 150
}

fn action((is_add, path, vector, stated): Action) -> Value {
    let mut file = json!({
        "path": format!("p={}/part-{path}.parquet", path % 7), "partitionValues": {"day": null, "city": null},
        "size": size_of_path(path), "modificationTime": 1, "dataChange": true,
    });
    if vector > 0 {
        file["deletionVector"] = json!({
            "storageType": "u", "pathOrInlineDv": format!("v{vector}"), "offset": 1, "sizeInBytes": 3, "cardinality": 1,
        });
    }
    match stated {
        Stated::Nothing if !is_add => _ = file.as_object_mut().unwrap().remove("size"),
        Stated::Wrong if !is_add => file["size"] = json!(0),
        _ => {}
    }
    if is_add { json!({"add": file}) } else { json!({"remove": file}) }
}

fn checkpoint(log: &Log, layout: Layout) {
    let adds = (0..FILES).map(|file| action((true, 2 * file, usize::from(file % 3 == 0), Stated::Size)));
    let adds: Vec<Value> = adds.collect();
    let heads = [protocol_row(), metadata_row(&["day", "city"])];
    let lines =
        |rows: &[Value]| rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n").into_bytes();
    let file = |rows: &[Value]| {
        let properties = WriterProperties::builder()
            .set_max_row_group_row_count(Some(120))
            .set_data_page_row_count_limit(25)
            .set_write_batch_size(5);
        parquet(&schema(), rows, properties.build())
    };
    match layout {
        Layout::Classic => _ = log.classic(&file(&[&adds[..7], &heads, &adds[7..]].concat())),
        Layout::MultiPart => {
            for (number, rows) in adds.chunks(FILES / 2).enumerate() {
                let heads = if number == 0 { &heads[..] } else { &[] };
                let name = format!("00000000000000000007.checkpoint.{:010}.0000000002.parquet", number + 1);
                log.write(&name, &file(&[heads, rows].concat()));
            }
        }
        Layout::Sidecars => {
            let mut top = heads.to_vec();
            for (number, rows) in adds.chunks(FILES / 5).enumerate() {
                let sidecar = log.write(&format!("_sidecars/{number}.parquet"), &file(rows));
                let path = format!("{number}.parquet");
                top.push(
                    json!({"sidecar": {"path": path, "sizeInBytes": sidecar.size, "modificationTime": 1}}),
                );
            }
            log.write(&format!("00000000000000000007.checkpoint.{UUID}.json"), &lines(&top));
        }
        Layout::Json => {
            let rows = [&heads[..], &adds].concat();
            log.write(&format!("00000000000000000007.checkpoint.{UUID}.json"), &lines(&rows));
        }
    }
}

fn of_live_files(snapshot: &Snapshot) -> Totals {
    let mut totals = Totals::default();
    each_live_batch(snapshot, |batch, rows| totals.add(batch, rows)).unwrap();
    totals
}

/// Writes the commits after the checkpoint, and compares the totals of each version, loaded and advanced.
fn compare(layout: Layout, commits: &[Vec<Action>]) -> Vec<u64> {
    let log = Log::new();
    checkpoint(&log, layout);
    log.write(&format!("{:020}.json", 7), br#"{"commitInfo":{}}"#);
    let mut files = Vec::new();
    let mut previous: Option<Arc<Snapshot>> = None;
    for (number, actions) in commits.iter().enumerate() {
        let drawn = actions.iter().map(|drawn| action(*drawn).to_string());
        let lines: Vec<String> = drawn.chain([r#"{"commitInfo":{}}"#.to_owned()]).collect();
        log.write(&format!("{:020}.json", 8 + number), lines.join("\n").as_bytes());
        let load = |base| Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, base).unwrap();
        let fresh = load(None);
        let advanced = load(previous.as_ref().map(|snapshot| Base { snapshot, is_cached: true }));
        let expected = of_live_files(&fresh);
        assert_eq!(fresh.totals().unwrap(), expected, "{layout:?} {actions:?}");
        assert_eq!(advanced.totals().unwrap(), expected, "{layout:?} {actions:?}, advanced");
        files.push(expected.files);
        previous = Some(advanced);
    }
    files
}

const LAYOUTS: [Layout; 4] = [Layout::Classic, Layout::MultiPart, Layout::Sidecars, Layout::Json];

#[test]
fn totals_are_those_of_the_live_files_for_every_kind_of_commit() {
    use Stated::{Nothing, Size, Wrong};
    let all = FILES as u64;
    for layout in LAYOUTS {
        for (commit, expected, what) in [
            (vec![(false, 2, 0, Size)], all - 1, "a remove"),
            (vec![(false, 2, 0, Nothing)], all - 1, "a remove without its size"),
            (vec![(false, 2, 0, Wrong)], all - 1, "a remove with a wrong size"),
            (vec![(false, 3, 0, Size)], all, "a remove of a file that the checkpoint lacks"),
            (vec![(false, 2, 5, Size)], all, "a remove of a deletion vector that the checkpoint lacks"),
            (vec![(true, 3, 0, Size)], all + 1, "an add"),
            (vec![(true, 2, 0, Size)], all, "an add of a file that the checkpoint has"),
            (vec![(false, 2, 0, Size), (true, 2, 9, Size)], all, "a new deletion vector"),
            (vec![(false, 0, 1, Size), (true, 0, 2, Size)], all, "a replaced deletion vector"),
            (vec![(true, 3, 0, Size), (true, 3, 0, Size)], all + 1, "an add that is there twice"),
        ] {
            assert_eq!(compare(layout, &[commit]), [expected], "{what} in {layout:?}");
        }
        let again = [vec![(false, 2, 0, Size)], vec![(true, 2, 0, Size)], vec![(false, 2, 0, Nothing)]];
        assert_eq!(compare(layout, &again), [all - 1, all, all - 1]);
    }
}

#[test]
fn a_duplicate_add_of_a_checkpoint_counts_as_in_its_stream() {
    let log = Log::new();
    let twice = action((true, 2, 0, Stated::Size));
    let rows = [protocol_row(), metadata_row(&["day", "city"]), twice.clone(), twice];
    log.classic(&parquet(&schema(), &rows, WriterProperties::default()));
    log.write(&format!("{:020}.json", 7), br#"{"commitInfo":{}}"#);
    log.write(&format!("{:020}.json", 8), action((false, 2, 0, Stated::Size)).to_string().as_bytes());
    let snapshot = Snapshot::load(&Storage::local(), log.root(), TimeTravel::Latest, None).unwrap();
    assert_eq!(snapshot.totals().unwrap(), of_live_files(&snapshot));
    assert_eq!(snapshot.totals().unwrap(), Totals::default());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(ProptestConfig::default().cases / 16))]

    #[test]
    fn totals_are_those_of_the_live_files(
        layout in prop::sample::select(LAYOUTS.to_vec()),
        commits in prop::collection::vec(prop::collection::vec(drawn_action(), 0..30), 1..4),
    ) {
        compare(layout, &commits);
    }
}

fn drawn_action() -> impl Strategy<Value = Action> {
    let stated = prop_oneof![20 => Just(Stated::Size), 1 => Just(Stated::Nothing), 1 => Just(Stated::Wrong)];
    (any::<bool>(), 0..2 * FILES, 0..3_usize, stated)
}
