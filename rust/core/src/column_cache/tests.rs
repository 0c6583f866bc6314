use super::*;
use crate::actions::testing::files_named;
use crate::actions::{FileBatch, Metadata};
use crate::file_id::{FileIds, IdScheme};
use crate::predicate::{Hints, PartitionVerdicts, Predicate, PruneCounts};
use crate::replay::ReplaySet;
use crate::schema::COLUMN_MAPPING_MODE;

fn key(table: u64) -> ColumnsKey {
    ColumnsKey { table, digest: [0; 32] }
}

fn pushed(builder: &mut ColumnsBuilder, batch: &Arc<CachedBatch>) -> bool {
    builder.push(batch, false) == Pushed::Yes
}

fn unlimited() -> Arc<StatsBudget> {
    Arc::new(StatsBudget::new(usize::MAX))
}

fn batch(files: usize) -> Arc<CachedBatch> {
    let paths: Vec<String> = (0..files).map(|number| format!("part-{number:032}.parquet")).collect();
    Arc::new(CachedBatch::cached(Arc::new(files_named(&paths)), &unlimited()))
}

/// Returns the size of the columns of a thousand files.
fn thousand_bytes() -> usize {
    let cache = Arc::new(ColumnCache::new(1 << 30));
    fill(&cache, 1, 1000);
    cache.used_bytes()
}

fn fill(cache: &Arc<ColumnCache>, table: u64, files: usize) {
    let mut builder = cache.claim_build(&key(table), Some(files as u64)).unwrap();
    assert!(pushed(&mut builder, &batch(files)));
    builder.finish();
}

#[test]
fn each_version_sees_its_dead_files_after_requests_of_other_versions() {
    let batch = batch(100);
    let seen = |dead: &[usize]| {
        let mut set = ReplaySet::default();
        for file in dead {
            assert!(set.insert(batch.files.path.value(*file), None));
        }
        Arc::new(set)
    };
    let sets = [seen(&[]), seen(&[0, 1, 50, 99]), seen(&[7])];
    for set in sets.iter().chain(&sets).chain([&sets[2], &sets[1], &sets[1]]) {
        assert_eq!(batch.live_rows(set), set.live(&batch.files));
    }
    for dead in 0..50 {
        // Each set is freed before the next one is made, perhaps at the same address.
        let set = seen(&[dead]);
        assert_eq!(batch.live_rows(&set), set.live(&batch.files));
    }
}

#[test]
fn ids_are_made_for_many_files_and_then_serve_few() {
    let batch = batch(80);
    let bytes = batch.bytes();
    assert!(batch.ids(IdScheme::Delta, 9).is_none());
    let ids = batch.ids(IdScheme::Delta, 10).unwrap();
    assert_eq!(ids.digest(79), FileIds::of(IdScheme::Delta, &batch.files.path).digest(79));
    assert!(batch.ids(IdScheme::Delta, 1).is_some() && batch.ids(IdScheme::Parquet, 1).is_none());
    assert_eq!(batch.bytes(), bytes + 80 * 32);
    assert!(CachedBatch::transient(Arc::clone(&batch.files)).ids(IdScheme::Delta, 80).is_none());
}

#[test]
fn of_two_scans_at_once_only_one_builds() {
    let cache = Arc::new(ColumnCache::new(1 << 20));
    let first = cache.claim_build(&key(1), Some(1000)).unwrap();
    assert!(cache.claim_build(&key(1), Some(1000)).is_none());
    assert!(cache.get(&key(1)).is_none());
    first.finish();
    assert!(cache.get(&key(1)).is_some());
}

#[test]
fn a_scan_that_breaks_off_leaves_the_next_one_to_build() {
    let cache = Arc::new(ColumnCache::new(1 << 20));
    let mut first = cache.claim_build(&key(1), Some(1000)).unwrap();
    assert!(pushed(&mut first, &batch(10)));
    drop(first);
    assert!(cache.claim_build(&key(1), Some(1000)).is_some());
}

#[test]
fn the_least_recently_used_columns_leave_first() {
    let one = batch(1000).bytes();
    let cache = Arc::new(ColumnCache::new(2 * one + one / 2));
    fill(&cache, 1, 1000);
    fill(&cache, 2, 1000);
    let walked = cache.get(&key(1)).unwrap();
    fill(&cache, 3, 1000);
    assert!(cache.get(&key(2)).is_none());
    assert!(cache.used_bytes() <= 2 * one + one / 2);
    cache.shrink(0);
    assert_eq!(cache.used_bytes(), 0);
    assert_eq!(walked.files(), 1000);
}

#[test]
fn a_table_larger_than_the_budget_is_tried_once() {
    let cache = Arc::new(ColumnCache::new(batch(1000).bytes()));
    let mut builder = cache.claim_build(&key(1), Some(1000)).unwrap();
    assert!(pushed(&mut builder, &batch(900)));
    assert!(!pushed(&mut builder, &batch(900)));
    drop(builder);
    assert!(cache.claim_build(&key(1), Some(1000)).is_none());
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn a_table_that_did_not_fit_is_tried_again_when_it_may_fit_and_not_at_its_next_checkpoint() {
    let cache = Arc::new(ColumnCache::new(batch(1000).bytes() * 3 / 2));
    let at = |version: u32| ColumnsKey { digest: [version as u8 + 1; 32], ..key(1) };
    let mut builder = cache.claim_build(&at(0), Some(4000)).unwrap();
    assert!(pushed(&mut builder, &batch(1000)));
    assert!(!pushed(&mut builder, &batch(1000)));
    drop(builder);
    for version in 1..20 {
        assert!(cache.claim_build(&at(version), Some(4000 + u64::from(version))).is_none());
        assert!(!cache.record_miss(&at(version), Some(4000)) && !cache.record_miss(&at(version), None));
    }
    assert!(cache.claim_build(&at(20), Some(1000)).is_some(), "files were removed");
    cache.set_budget(batch(1000).bytes() * 5);
    assert!(cache.claim_build(&at(21), Some(4000)).is_some(), "the budget has grown");
}

#[test]
fn a_table_that_does_not_fit_takes_nothing_from_the_others() {
    let one = thousand_bytes();
    let cache = Arc::new(ColumnCache::new(4 * one + one / 2));
    fill(&cache, 1, 1000);
    fill(&cache, 2, 1000);
    for files in [Some(6000), None] {
        let mut builder = cache.claim_build(&key(3), files).unwrap();
        assert!(pushed(&mut builder, &batch(1000)) && pushed(&mut builder, &batch(1000)));
        assert!(!pushed(&mut builder, &batch(1000)), "{files:?}");
        drop(builder);
        assert!(cache.get(&key(1)).is_some() && cache.get(&key(2)).is_some(), "{files:?}");
        assert_eq!(cache.used_bytes(), 2 * one);
        cache.forget_columns(3);
    }
    let mut builder = cache.claim_build(&key(3), Some(4000)).unwrap();
    assert!((0..4).all(|_| pushed(&mut builder, &batch(1000))), "one that fits does");
    builder.finish();
    assert!(cache.get(&key(3)).is_some() && cache.get(&key(1)).is_none());
}

#[test]
fn a_build_that_clearly_cannot_fit_ends_after_a_sample_and_is_not_tried_again() {
    let cache = Arc::new(ColumnCache::new(50 * thousand_bytes()));
    fill(&cache, 2, 1000);
    let four_thousand = batch(4000);
    let pushed = |files: u64| {
        let mut builder = cache.claim_build(&key(1), Some(files)).unwrap();
        (0..7).take_while(|_| pushed(&mut builder, &four_thousand)).count()
    };
    assert_eq!(pushed(30_000), 7, "it fits");
    assert_eq!(pushed(47_000), 7, "the other files may be smaller");
    assert_eq!(pushed(100_000), 4);
    assert!(cache.claim_build(&key(1), Some(100_000)).is_none());
    assert!(cache.claim_build(&key(1), Some(30_000)).is_some(), "files were removed");
    assert!(cache.get(&key(2)).is_some(), "nothing was evicted for it");
}

#[test]
fn columns_that_grow_beyond_the_budget_leave_alone_and_are_not_built_again() {
    for grows_while_it_is_built in [true, false] {
        let cache = Arc::new(ColumnCache::new(1 << 30));
        fill(&cache, 1, 10);
        let others = cache.used_bytes();
        let columns = batch(1500);
        let mut builder = cache.claim_build(&key(2), Some(1500)).unwrap();
        assert!(pushed(&mut builder, &columns));
        // More than that by less than the ids take.
        cache.set_budget(cache.used_bytes() + 1000);
        if grows_while_it_is_built {
            assert!(columns.ids(IdScheme::Delta, 1500).is_some());
            builder.finish();
        } else {
            builder.finish();
            cache.update_size(&key(2));
            assert!(cache.get(&key(1)).is_some() && cache.get(&key(2)).is_some());
            assert!(columns.ids(IdScheme::Delta, 1500).is_some());
            cache.update_size(&key(2));
        }
        assert!(cache.get(&key(2)).is_none());
        assert!(cache.get(&key(1)).is_some(), "it is not to blame");
        assert_eq!(cache.used_bytes(), others);
        assert!(cache.claim_build(&key(2), Some(1500)).is_none());
        assert!(cache.claim_build(&key(2), Some(100)).is_some(), "files were removed");
    }
}

#[test]
fn columns_and_other_entries_are_evicted_in_the_order_of_their_uses() {
    let one = thousand_bytes();
    let cache = Arc::new(ColumnCache::with_least(3 * one, 0));
    let keep = |bytes: usize| {
        let item = Arc::new(bytes);
        let parts = vec![Allocation::shared(&item, bytes)];
        cache.keep(7, item, parts)
    };
    let first = keep(one).unwrap();
    fill(&cache, 1, 1000);
    let second = keep(one).unwrap();
    assert!(cache.touch(first));
    fill(&cache, 2, 1000);
    assert!(cache.get(&key(1)).is_none(), "it was used before the others");
    assert!(cache.touch(first) && cache.touch(second));
    let third = keep(one).unwrap();
    assert!(cache.get(&key(2)).is_none());
    assert_eq!(keep(3 * one + 1), None);
    assert!([first, second, third].iter().all(|kept| cache.touch(*kept)), "what does not fit drops nothing");
    assert_eq!(cache.used_bytes(), 3 * one);
    cache.forget(7);
    assert_eq!(cache.used_bytes(), 0);
    assert!(cache.lock().parts.is_empty() && cache.lock().uses.is_empty());
}

#[test]
fn partition_values_that_batches_share_count_once() {
    let cache = Arc::new(ColumnCache::new(1 << 20));
    let mut interner = crate::partition::PartitionInterner::new(&["p"]);
    let mut with_values = |values: &[String]| {
        let mut column = interner.column(values.len());
        for value in values {
            column.push(&[Some(value)]);
        }
        let partitions = column.finish();
        Arc::new(CachedBatch::cached(Arc::new(FileBatch { partitions, ..files_named(values) }), &unlimited()))
    };
    let values: Vec<String> = (0..50).map(|value| format!("{value:0100}")).collect();
    let batches = [with_values(&values[..20]), with_values(&values), with_values(&values[..10])];
    let mut builder = cache.claim_build(&key(1), Some(80)).unwrap();
    assert!(batches.iter().all(|batch| pushed(&mut builder, batch)));
    let tuples = &batches[1].files.partitions.dictionary;
    let dictionary: usize = tuples.iter().map(|tuple| tuple.memory_bytes()).sum();
    assert!(dictionary > 50 * 200);
    builder.finish();
    let of_batches: usize = batches.iter().map(|batch| batch.bytes()).sum();
    assert_eq!(cache.used_bytes(), of_batches + dictionary);
}

#[test]
fn counting_again_reads_no_deletion_vector_and_no_text() {
    let vector = crate::actions::DeletionVectorDescriptor {
        storage_type: b'i',
        path_or_inline: "x".repeat(100),
        offset: None,
        size_in_bytes: 1,
        cardinality: 1,
    };
    let paths: Vec<String> = (0..1000).map(|file| format!("part-{file}")).collect();
    let vectors = Some(vec![Some(Box::new(vector)); paths.len()]);
    let files = FileBatch { deletion_vector: vectors, ..files_named(&paths) };
    let bytes = files.memory_bytes();
    assert!(bytes > 1000 * 100);
    let batch = CachedBatch::cached(Arc::new(files), &unlimited());
    assert_eq!((batch.file_bytes, batch.bytes()), (bytes, bytes));
}

#[test]
fn two_builds_at_once_stay_within_the_budget_together() {
    let cache = Arc::new(ColumnCache::new(batch(1000).bytes() * 3 / 2));
    let mut first = cache.claim_build(&key(1), Some(1000)).unwrap();
    let mut second = cache.claim_build(&key(2), Some(1000)).unwrap();
    assert!(pushed(&mut first, &batch(1000)));
    assert!(!pushed(&mut second, &batch(1000)));
    drop(second);
    first.finish();
    assert!(cache.get(&key(1)).is_some());
    assert!(cache.claim_build(&key(2), Some(1000)).is_some(), "there may be room for it later");
}

#[test]
fn the_second_partial_scan_requests_columns() {
    let cache = Arc::new(ColumnCache::new(1 << 20));
    assert!(!cache.record_miss(&key(1), Some(10)));
    assert!(!cache.record_miss(&key(2), Some(10)));
    assert!(cache.record_miss(&key(1), Some(10)));
    fill(&cache, 1, 10);
    assert!(!cache.record_miss(&key(1), Some(10)));
    assert!(!Arc::new(ColumnCache::new(0)).record_miss(&key(1), Some(10)));
}

#[test]
fn a_removed_table_leaves_no_entries_and_its_running_build_is_dropped() {
    let cache = Arc::new(ColumnCache::new(1 << 20));
    fill(&cache, 1, 10);
    fill(&cache, 2, 10);
    let other = ColumnsKey { digest: [1; 32], ..key(1) };
    let mut building = cache.claim_build(&other, Some(10)).unwrap();
    assert!(pushed(&mut building, &batch(10)));
    cache.forget_columns(1);
    assert!(cache.get(&key(1)).is_none() && cache.get(&key(2)).is_some());
    assert!(!pushed(&mut building, &batch(10)));
    building.finish();
    assert!(cache.get(&other).is_none());
    assert!(cache.claim_build(&other, Some(10)).is_some());
}

#[test]
fn all_of_the_metadata_that_decoding_depends_on_is_part_of_the_key() {
    let metadata = Metadata {
        id: "t".into(),
        schema_string: Some("{}".into()),
        partition_columns: vec!["p".into(), "q".into()],
        ..Metadata::default()
    };
    let others = [
        Metadata { id: "u".into(), ..metadata.clone() },
        Metadata { schema_string: Some("{ }".into()), ..metadata.clone() },
        Metadata { schema_string: None, ..metadata.clone() },
        Metadata { partition_columns: vec!["q".into(), "p".into()], ..metadata.clone() },
        Metadata { partition_columns: vec!["pq".into()], ..metadata.clone() },
        Metadata { configuration: vec![(COLUMN_MAPPING_MODE.into(), "name".into())], ..metadata.clone() },
    ];
    for other in &others {
        assert_ne!(Decoding::of(other), Decoding::of(&metadata), "{other:?}");
    }
    let renamed = Metadata { name: Some("n".into()), ..metadata.clone() };
    assert_eq!(Decoding::of(&renamed), Decoding::of(&metadata));
}

#[test]
fn without_a_budget_nothing_is_built() {
    assert!(Arc::new(ColumnCache::new(0)).claim_build(&key(1), Some(1000)).is_none());
}

/// Collects a selection of `files` files; returns whether all of them had room.
fn select(cache: &Arc<ColumnCache>, selection: u8, files: usize) -> bool {
    let key = key(1).of_selection([selection; 32], None, true);
    let mut builder = cache.collect_selection(&key).unwrap();
    let has_room = builder.push(&batch(files).files);
    if has_room {
        builder.finish();
    }
    has_room
}

#[test]
fn selections_share_an_eighth_of_the_budget_and_never_evict_columns() {
    let cache = Arc::new(ColumnCache::new(8 * 4 * thousand_bytes()));
    fill(&cache, 2, 20_000);
    let columns = cache.used_bytes();
    let is_kept = |selection: u8| {
        cache.selection(&key(1).of_selection([selection; 32], None, true)).is_some_and(|kept| kept.len() == 1)
    };
    for selection in 0..100 {
        assert!(select(&cache, selection, 1000));
        assert!(is_kept(selection));
        assert!(is_kept(0), "the least recently used one is evicted");
        assert!(cache.used_bytes() <= columns + 4 * thousand_bytes(), "{selection}");
    }
    assert!((1..97).all(|selection| !is_kept(selection)));
    assert!(!select(&cache, 200, 5000), "it exceeds the share");
    assert!(cache.has(&key(2)));
    cache.forget(1);
    assert_eq!(cache.used_bytes(), columns);
}

#[test]
fn selections_that_are_collected_at_once_share_the_same_eighth() {
    let cache = Arc::new(ColumnCache::new(8 * 4 * thousand_bytes()));
    let files = batch(1000);
    let mut builders: Vec<_> = (0..8)
        .map(|number| cache.collect_selection(&key(1).of_selection([number; 32], None, true)).unwrap())
        .collect();
    let with_room =
        builders.iter_mut().filter_map(|builder| builder.push(&files.files).then_some(())).count();
    assert!((1..=4).contains(&with_room), "{with_room}");
    assert!(cache.used_bytes() <= 4 * thousand_bytes());
    drop(builders);
    assert_eq!(cache.used_bytes(), 0);
}

#[test]
fn a_selection_that_exceeds_the_share_evicts_no_other_twice() {
    let cache = Arc::new(ColumnCache::new(8 * 4 * thousand_bytes()));
    let key_of = |selection: u8| key(1).of_selection([selection; 32], None, true);
    assert!(select(&cache, 1, 1000));
    assert!(!select(&cache, 2, 5000));
    assert!(cache.selection(&key_of(1)).is_some(), "a batch that never fits evicts nothing");
    assert!(cache.collect_selection(&key_of(2)).is_none(), "it is not collected again");
    let mut by_batches = cache.collect_selection(&key_of(3)).unwrap();
    assert!((0..9).any(|_| !by_batches.push(&batch(1000).files)));
    drop(by_batches);
    assert!(select(&cache, 1, 1000) && cache.collect_selection(&key_of(3)).is_none());
    cache.set_budget(8 * 20 * thousand_bytes());
    assert!(select(&cache, 2, 5000), "it fits a larger budget");
    cache.set_budget(8 * 4 * thousand_bytes());
    cache.forget_columns(1);
    assert_eq!(cache.used_bytes(), 0);
    assert!(!select(&cache, 2, 5000));
    cache.forget_columns(1);
    assert!(cache.collect_selection(&key_of(2)).is_some());
}

#[test]
fn a_selection_that_is_collected_keeps_no_dictionary_of_the_scan_but_the_last() {
    let cache = Arc::new(ColumnCache::new(64 << 20));
    let mut builder = cache.collect_selection(&key(1).of_selection([1; 32], None, true)).unwrap();
    let batches: Vec<_> = (0..3).map(|_| batch(10)).collect();
    for batch in &batches {
        assert!(builder.push(&batch.files));
    }
    let holders = batches.iter().map(|batch| Arc::strong_count(&batch.files.partitions.dictionary));
    assert_eq!(holders.collect::<Vec<_>>(), [1, 1, 2]);
    builder.finish();
    let kept = cache.selection(&key(1).of_selection([1; 32], None, true)).unwrap();
    let files = &kept.batch(2).unwrap().unwrap().files;
    assert!(files.partitions.keys.iter().all(|key| (*key as usize) < files.partitions.dictionary.len()));
}

#[test]
fn room_for_a_batch_costs_the_same_beside_many_selections() {
    let push_beside = |kept: u32| {
        let cache = Arc::new(ColumnCache::new(1 << 30));
        let of = |number: u32| {
            let mut digest = [0; 32];
            digest[..4].copy_from_slice(&number.to_le_bytes());
            key(1).of_selection(digest, None, true)
        };
        for number in 0..kept {
            let mut builder = cache.collect_selection(&of(number)).unwrap();
            assert!(builder.push(&batch(1).files));
            builder.finish();
        }
        cache.set_budget(8 * cache.used_bytes());
        let (mut builder, files) = (cache.collect_selection(&of(kept)).unwrap(), batch(1));
        let push = |_| {
            let began = Instant::now();
            assert!(builder.push(&files.files));
            began.elapsed()
        };
        // The median: another process may take the processor during any of them.
        let mut times: Vec<_> = (0..21).map(push).collect();
        times.sort_unstable();
        times[10]
    };
    let (few, many) = (push_beside(100), push_beside(10_000));
    assert!(many < few * 20, "{few:?} {many:?}");
}

#[test]
fn statistics_for_a_predicate_on_many_columns_stay_within_the_budget_and_leave_the_columns() {
    const COLUMNS: usize = 300;
    let field = |number| format!(r#"{{"name":"c{number}","type":"long","nullable":true,"metadata":{{}}}}"#);
    let fields: Vec<_> = (0..COLUMNS).map(field).collect();
    let schema_string = format!(r#"{{"type":"struct","fields":[{}]}}"#, fields.join(","));
    let metadata = Metadata { schema_string: Some(schema_string), ..Metadata::default() };
    let sql = (0..COLUMNS).map(|number| format!("c{number} = 1")).collect();
    let (wide, problems) = Predicate::of_table(&metadata, &Hints { sql, json: None });
    assert_eq!(problems, []);
    let budget = 4 * thousand_bytes();
    let cache = Arc::new(ColumnCache::new(budget));
    for table in 1..3 {
        let mut builder = cache.claim_build(&key(table), Some(1000)).unwrap();
        let files = builder.batch(Arc::clone(&batch(1000).files));
        assert!(pushed(&mut builder, &Arc::new(files)));
        builder.finish();
        let columns = cache.get(&key(table)).unwrap();
        let batch = columns.batch(0).unwrap().unwrap();
        let select = |predicate: &Predicate, rows: Vec<u32>| {
            let (mut verdicts, mut counts) = (PartitionVerdicts::default(), PruneCounts::default());
            predicate.select(&batch.files, &batch.stats, rows, &mut verdicts, &mut counts).len()
        };
        assert_eq!(select(&wide, (0..1000).collect()), 1000);
        assert!(!wide.prepare(&batch.files, &batch.stats));
        assert!(batch.stats.memory_bytes() <= budget, "{}", batch.stats.memory_bytes());
        // Some columns fit alone, and with those of the batch exceed the budget.
        for number in 0..COLUMNS {
            let sql = vec![format!("c{number} = 1")];
            let (one, _) = Predicate::of_table(&metadata, &Hints { sql, json: None });
            assert_eq!(select(&one, (0..1000).collect()), 1000);
        }
        assert!((1..=budget).contains(&batch.stats.memory_bytes()));
        assert_eq!(batch.stats.memory_bytes(), cache.stats_budget().used());
        cache.update_size(&key(table));
        assert!(cache.has(&key(table)) && cache.used_bytes() <= budget);
    }
    cache.shrink(0);
    assert_eq!(cache.stats_budget().used(), 0);
}

#[test]
fn statistics_and_ids_of_a_selection_count() {
    let cache = Arc::new(ColumnCache::new(8 * 4 * thousand_bytes()));
    assert!(select(&cache, 1, 1000) && select(&cache, 2, 1000));
    let before = cache.used_bytes();
    let key = key(1).of_selection([1; 32], None, true);
    let columns = cache.selection(&key).unwrap();
    assert!(columns.batch(0).unwrap().unwrap().ids(IdScheme::Delta, 1000).is_some());
    cache.update_size(&key);
    assert_eq!(cache.used_bytes(), before + 1000 * 32);
    cache.set_budget(8 * thousand_bytes());
    assert!(cache.used_bytes() <= 8 * thousand_bytes());
    cache.update_size(&key);
    assert!(cache.used_bytes() <= thousand_bytes(), "the share follows the budget");
}

#[test]
fn a_selection_is_that_of_its_predicate_rule_fields_and_columns() {
    let columns = ColumnsKey { table: 1, digest: [1; 32] };
    let keys = [
        columns,
        columns.of_selection([0; 32], None, false),
        columns.of_selection([0; 32], None, true),
        columns.of_selection([0; 32], Some([0; 32]), false),
        columns.of_selection([0; 32], Some([2; 32]), false),
        columns.of_selection([2; 32], None, false),
        ColumnsKey { table: 1, digest: [2; 32] }.of_selection([0; 32], None, false),
        ColumnsKey { table: 2, digest: [1; 32] }.of_selection([0; 32], None, false),
    ];
    for (place, key) in keys.iter().enumerate() {
        assert!(!keys[..place].contains(key), "{place}");
    }
}

#[test]
fn builds_under_way_give_back_what_they_keep_the_largest_first() {
    let cache = Arc::new(ColumnCache::new(1 << 30));
    fill(&cache, 1, 1000);
    let (small, large) = (batch(100), batch(1000));
    let freed = [&small, &large].map(Arc::downgrade);
    let mut of_small = cache.claim_build(&key(2), Some(1000)).unwrap();
    let mut of_large = cache.claim_build(&key(3), Some(2000)).unwrap();
    let others = cache.used_bytes();
    assert!(pushed(&mut of_small, &small));
    let bytes = cache.used_bytes() - others;
    assert!(pushed(&mut of_large, &large));
    drop((small, large));
    cache.shrink(2 * bytes);
    assert!(!cache.has(&key(1)), "columns that are complete leave before");
    // A build that waits for its client gives back its memory, too.
    assert!(freed[1].upgrade().is_none() && freed[0].upgrade().is_some());
    assert_eq!(cache.used_bytes(), bytes);
    assert!(cache.claim_build(&key(3), Some(2000)).is_none(), "its scan still runs");
    assert!(!pushed(&mut of_large, &batch(1000)));
    assert!(pushed(&mut of_small, &batch(900)));
    drop(of_large);
    of_small.finish();
    assert_eq!(cache.get(&key(2)).unwrap().files(), 1000);
    assert!(cache.get(&key(3)).is_none() && cache.claim_build(&key(3), Some(2000)).is_some());
}

#[test]
fn a_build_that_gave_back_its_batches_leaves_no_trace_of_them() {
    let cache = Arc::new(ColumnCache::new(1 << 30));
    let mut builder = cache.claim_build(&key(1), Some(200)).unwrap();
    assert!(pushed(&mut builder, &batch(100)));
    cache.shrink(0);
    builder.finish();
    assert_eq!((cache.get(&key(1)).is_none(), cache.used_bytes()), (true, 0));
    // A build of a table that was removed and came back adds nothing to the next build of the same columns.
    let mut first = cache.claim_build(&key(1), Some(200)).unwrap();
    cache.forget(1);
    let mut second = cache.claim_build(&key(1), Some(200)).unwrap();
    assert!(!pushed(&mut first, &batch(100)) && pushed(&mut second, &batch(100)));
    second.finish();
    assert_eq!(cache.get(&key(1)).unwrap().files(), 100);
}
