//! Assignments against their definitions.

use super::*;
use proptest::prelude::*;

fn queues(loads: &[u64]) -> Vec<Queue> {
    loads.iter().map(|load| Queue { load: *load, ..Queue::default() }).collect()
}

fn on_cores(cores: &[usize]) -> Vec<Thread> {
    cores.iter().map(|core| Thread { core: Some(*core), numa: Some(0) }).collect()
}

fn assigned(queues: &[Queue], threads: &[Thread], algorithm: Algorithm) -> Vec<usize> {
    let policy = Policy { algorithm, isolate: true };
    assign(queues, threads, policy).thread_of.into_iter().map(|t| t.expect("there are threads")).collect()
}

#[test]
fn each_algorithm_by_example() {
    let threads = on_cores(&[0, 1, 2]);
    let seven = queues(&[1, 9, 5, 5, 2, 8, 0]);
    assert_eq!(assigned(&seven, &threads, Algorithm::RoundRobin), [0, 1, 2, 0, 1, 2, 0]);
    // By load: 9 8 5 5 2 1 0 to 0 1 2 2 1 0 0.
    assert_eq!(assigned(&seven, &threads, Algorithm::Cycles), [0, 0, 2, 2, 1, 1, 0]);
    // 9 to 0, 8 to 1, 5 and 5 to 2, then 2 to 1 (8), 1 to 0 (9), 0 to any of 10: with two queues each, the first.
    assert_eq!(assigned(&seven, &threads, Algorithm::Group), [0, 0, 2, 2, 1, 1, 0]);
    assert_eq!(assigned(&queues(&[0; 5]), &on_cores(&[4, 7]), Algorithm::Group), [0, 1, 0, 1, 0]);
    assert!(assign(&seven, &[], Policy::default()).thread_of.iter().all(Option::is_none));
}

#[test]
fn queues_are_assigned_in_a_documented_order() {
    let mut five = queues(&[1, 3, 3, 1, 9]);
    (five[1].is_last, five[3].is_last, five[4].core) = (true, true, Some(1));
    for (algorithm, order) in [(Algorithm::RoundRobin, [0, 2, 1, 3]), (Algorithm::Cycles, [2, 1, 0, 3])] {
        let policy = Policy { algorithm, isolate: true };
        assert_eq!(assign(&five, &on_cores(&[0, 1]), policy).unpinned, order, "{algorithm:?}");
    }
}

#[test]
fn pins_isolate_their_cores() {
    let threads = on_cores(&[1, 2]);
    let mut three = queues(&[5, 5, 5]);
    three[1].core = Some(2);
    let pinned = assign(&three, &threads, Policy::default());
    assert_eq!((pinned.thread_of, pinned.isolated), (vec![Some(0), Some(1), Some(0)], vec![false, true]));
    // Without isolation, pinned queues count as load.
    let group = Policy { algorithm: Algorithm::Group, isolate: false };
    let shared = assign(&three, &threads, group);
    assert_eq!((&shared.thread_of[..], shared.crowded), (&[Some(0), Some(1), Some(0)][..], false));
    assert_eq!(shared.loads(&three), [10, 5]);
    // A core without a thread is ignored.
    three[1].core = Some(7);
    let nowhere = assign(&three, &threads, Policy::default());
    assert_eq!((nowhere.unpinnable, nowhere.isolated), (vec![1], vec![false, false]));
    // If all threads are isolated, the other queues are still assigned.
    let one = on_cores(&[3]);
    three[1].core = Some(3);
    let crowded = assign(&three, &one, Policy::default());
    assert_eq!((crowded.thread_of, crowded.isolated, crowded.crowded), (vec![Some(0); 3], vec![true], true));
}

#[test]
fn queues_stay_on_their_node_if_it_has_threads() {
    let threads = [(0, 0), (1, 0), (2, 1)].map(|(core, numa)| Thread { core: Some(core), numa: Some(numa) });
    let on = |numa| Queue { numa, ..Queue::default() };
    let all = [on(Some(0)), on(Some(1)), on(Some(0)), on(Some(1)), on(Some(0)), on(Some(2)), on(None)];
    assert_eq!(assigned(&all, &threads, Algorithm::Cycles), [0, 2, 1, 2, 1, 0, 1]);
}

#[test]
fn improvement_is_a_smaller_variance() {
    assert_eq!(improvement_percent(&[100, 0], &[50, 50]), 100);
    assert_eq!(improvement_percent(&[100, 0], &[75, 25]), 75);
    assert_eq!((improvement_percent(&[50, 50], &[50, 50]), improvement_percent(&[60, 40], &[100, 0])), (0, 0));
    assert_eq!(improvement_percent(&[], &[]), 0);
}

fn arb_queue() -> impl Strategy<Value = Queue> {
    let small = |n: usize| prop::option::of(0..n);
    (0u64..50, prop::option::weighted(0.2, 0usize..8), small(3)).prop_map(|(load, core, numa)| Queue {
        load,
        core,
        numa,
        ..Queue::default()
    })
}

fn arb_threads() -> impl Strategy<Value = Vec<Thread>> {
    prop::collection::btree_map(0usize..8, 0usize..3, 1..6)
        .prop_map(|cores| cores.into_iter().map(|(core, numa)| Thread { core: Some(core), numa: Some(numa) }).collect())
}

fn arb_policy() -> impl Strategy<Value = Policy> {
    let algorithm = prop_oneof![Just(Algorithm::RoundRobin), Just(Algorithm::Cycles), Just(Algorithm::Group)];
    (algorithm, any::<bool>()).prop_map(|(algorithm, isolate)| Policy { algorithm, isolate })
}

/// The threads that a queue may be assigned to, by the rules in the module documentation.
fn candidates(queue: &Queue, threads: &[Thread], isolated: &[bool]) -> Vec<usize> {
    let all_isolated = isolated.iter().all(|i| *i);
    let open: Vec<usize> = (0..threads.len()).filter(|t| all_isolated || !isolated[*t]).collect();
    let near: Vec<usize> =
        open.iter().copied().filter(|t| queue.numa.is_none() || threads[*t].numa == queue.numa).collect();
    if near.is_empty() { open } else { near }
}

tally::proptest! {
    #[test]
    fn every_queue_gets_an_eligible_thread(
        queues in prop::collection::vec(arb_queue(), 0..30), threads in arb_threads(), policy in arb_policy(),
    ) {
        let assignment = assign(&queues, &threads, policy);
        prop_assert_eq!(assignment.thread_of.len(), queues.len());
        let thread_of = |core| threads.iter().position(|t: &Thread| t.core == core);
        let pinned = |queue: &Queue| queue.core.and_then(|core| thread_of(Some(core)));
        for (at, isolated) in assignment.isolated.iter().enumerate() {
            let has_pin = queues.iter().any(|q| pinned(q) == Some(at));
            prop_assert_eq!(*isolated, policy.isolate && has_pin);
        }
        let mut free = 0;
        for (at, queue) in queues.iter().enumerate() {
            let thread = assignment.thread_of[at];
            match pinned(queue) {
                Some(own) => prop_assert_eq!(thread, Some(own)),
                None => {
                    free += 1;
                    let may = candidates(queue, &threads, &assignment.isolated);
                    prop_assert!(thread.is_some_and(|t| may.contains(&t)), "{:?} of {:?}", thread, may);
                }
            }
            prop_assert_eq!(assignment.unpinnable.contains(&at), queue.core.is_some() && pinned(queue).is_none());
        }
        prop_assert_eq!(assignment.crowded, free > 0 && assignment.isolated.iter().all(|i| *i));
        prop_assert_eq!(assignment.loads(&queues).iter().sum::<u64>(), queues.iter().map(|q| q.load).sum::<u64>());
    }

    /// On one node and without pins, the definitions of the algorithms hold literally.
    #[test]
    fn each_algorithm_follows_its_definition(
        loads in prop::collection::vec(0u64..20, 0..40), n in 1usize..6, policy in arb_policy(),
    ) {
        let (queues, threads) = (queues(&loads), on_cores(&(0..n).collect::<Vec<_>>()));
        let thread_of = assigned(&queues, &threads, policy.algorithm);
        let mut order: Vec<usize> = (0..queues.len()).collect();
        order.sort_by(|a, b| loads[*b].cmp(&loads[*a]).then(a.cmp(b)));
        match policy.algorithm {
            Algorithm::RoundRobin => {
                prop_assert!(thread_of.iter().enumerate().all(|(at, thread)| *thread == at % n));
            }
            Algorithm::Cycles => {
                let forth_and_back = (0..n).chain((0..n).rev()).cycle();
                prop_assert!(order.iter().zip(forth_and_back).all(|(at, thread)| thread_of[*at] == thread));
            }
            Algorithm::Group => {
                let mut given = vec![(0, 0); n];
                for at in order {
                    let least = given.iter().min().copied();
                    let thread = thread_of[at];
                    prop_assert_eq!(Some(given[thread]), least);
                    prop_assert!(given[..thread].iter().all(|g| Some(*g) != least));
                    given[thread] = (given[thread].0 + loads[at], given[thread].1 + 1);
                }
            }
        }
    }
}
