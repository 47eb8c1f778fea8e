//! Random clients acquire and release permits; a ledger checks the limits.

use proptest::prelude::*;
use serde_json::json;

use super::*;

const ROOM: AdmissionLimits = AdmissionLimits {
    client: Amount { requests: 5, bytes: 1000 },
    own: Amount { requests: 2, bytes: 200 },
    pool: Amount { requests: 8, bytes: 2500 },
};

tally::proptest! {
    #[test]
    fn pending_requests_stay_within_the_limits(
        steps in proptest::collection::vec((0usize..4, 0usize..1500, any::<u8>()), 1..200),
    ) {
        let pool = Arc::new(Pool::new(ROOM));
        let quotas: Vec<Arc<Quota>> = (0..4).map(|_| Quota::new(&pool)).collect();
        let mut permits: Vec<(usize, Permit)> = Vec::new();
        for (client, bytes, choice) in steps {
            if choice % 3 == 0 && !permits.is_empty() {
                permits.remove(usize::from(choice) % permits.len());
                continue;
            }
            let of = |client: usize| permits.iter().filter(move |(owner, _)| *owner == client);
            let sum = |permits: &mut dyn Iterator<Item = &(usize, Permit)>| {
                permits.fold((0, 0), |(count, bytes), (_, permit)| (count + 1, bytes + permit.bytes()))
            };
            let (count, taken) = sum(&mut of(client));
            let (pooled, pooled_bytes) = sum(&mut permits.iter().filter(|(_, permit)| permit.pooled == Some(Pooled::Given)));
            let fits_own = count < 2 && taken + bytes <= 200;
            let fits_client = count == 0 || count < 5 && taken + bytes <= 1000;
            let fits_pool = fits_client && (pooled == 0 || pooled < 8 && pooled_bytes + bytes <= 2500);
            let expected = match (fits_own, fits_pool, count) {
                (true, ..) => Some(None),
                (false, true, _) => Some(Some(Pooled::Given)),
                (false, false, 0) => Some(Some(Pooled::Beyond)),
                _ => None,
            };
            let permit = quotas[client].try_take(bytes);
            prop_assert_eq!(permit.as_ref().map(|permit| permit.pooled), expected);
            permits.extend(permit.map(|permit| (client, permit)));
        }
        drop(permits);
        prop_assert_eq!(lock(&pool.state).taken, Amount::default());
        for quota in quotas {
            prop_assert_eq!(*lock(&quota.taken), Amount::default());
        }
    }
}

fn transact(text: &str) -> Message {
    Message::request(1, "transact", vec![json!("T"), json!(text)])
}

#[test]
fn only_requests_that_may_wait_or_are_long_need_permits() {
    let long = "x".repeat(SHORT_BYTES + 1);
    let echo = |text: &str| needed(&Message::request(1, "echo", vec![json!(text)]));
    assert_eq!(echo("x"), None);
    assert!(echo(&long).is_some_and(|bytes| bytes > SHORT_BYTES));
    assert!(needed(&transact("x")).is_some());
    assert_eq!(needed(&Message::notification("cancel", vec![json!(1)])), None);
    assert!(needed(&Message::notification("cancel", vec![json!(long)])).is_some());
    assert_eq!(needed(&Message::reply(json!("echo"), json!([]))), None);
}

/// The weight is close to the allocated memory: a much lower one would not limit it.
#[test]
fn the_weight_of_json_is_close_to_its_memory() {
    let numbers = Value::from((0..1000).collect::<Vec<_>>());
    assert!(weight(&numbers) >= 1000 * size_of::<Value>());
    let object: Value = (0..1000).map(|i| (i.to_string(), json!(["a", {}]))).collect::<serde_json::Map<_, _>>().into();
    assert!(weight(&object) >= 1000 * (size_of::<String>() + 3 * size_of::<Value>()));
    assert!(weight(&json!("x".repeat(5000))) >= 5000);
}

#[tokio::test]
async fn released_permits_go_to_waiting_clients() {
    let pool = Arc::new(Pool::new(AdmissionLimits {
        pool: Amount { requests: 1, bytes: 1 << 20 },
        ..AdmissionLimits::default()
    }));
    let (first, second) = (Quota::new(&pool), Quota::new(&pool));
    let long = transact(&"x".repeat(100_000));
    let given = first.try_admit(&long).expect("the pool has room");
    assert!(!given.may_not_wait());
    let beyond = second.try_admit(&long).expect("it has nothing under way");
    assert!(beyond.may_not_wait(), "the pool has none left");
    assert!(second.try_admit(&long).is_none());
    assert!(second.try_admit(&transact("short")).is_none(), "its own room is taken");
    let mut held = Box::pin(second.admit(&long));
    assert!(futures_poll(&mut held).is_none());
    assert_eq!(pool.held(), 1);
    drop(given);
    let permit = futures_poll(&mut held).expect("the pool has room again");
    assert!(!permit.may_not_wait());
    // A single request may be of any size.
    drop(permit);
    let third = Quota::new(&pool);
    let huge = third.try_take(1 << 30).expect("it has nothing under way");
    assert!(!huge.may_not_wait(), "the pool is empty");
    assert!(second.try_take(1 << 30).is_none(), "it has one under way");
    drop(huge);
    let permit = second.try_admit(&long).expect("there is room");
    assert!(!permit.may_not_wait());
    drop((held, beyond));
    assert_eq!((pool.held(), lock(&pool.state).taken.requests), (0, 1));
    let mut held = Box::pin(first.admit(&long));
    assert!(futures_poll(&mut held).is_some_and(|permit| permit.may_not_wait()));
}

fn futures_poll(future: &mut std::pin::Pin<Box<impl Future<Output = Permit>>>) -> Option<Permit> {
    match future.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(permit) => Some(permit),
        std::task::Poll::Pending => None,
    }
}
