//! Measures the deletion of all rules of a table: `deletions [RULES]`, by default 100,000. Prints a line of JSON for each kind
//! of table: milliseconds of the flow-mod, of the work that takes the removed rules out of the table and frees them
//! afterwards, and the longest time for which that work kept other changes waiting.

use base::Clock;
use ofproto::{Ofproto, Switch};
use openflow::flow_text::parse_flow_line;
use serde_json::json;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// The number of turns of the work, which are more than it needs.
const TURNS: usize = 300;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rules = std::env::args().nth(1).map(|w| w.parse::<u32>()).transpose()?.unwrap_or(100_000);
    for (kind, cookie, stays) in
        [("without cookies", 0, false), ("with cookies", 1, false), ("one rule stays", 0, true)]
    {
        let switch = Switch::new(Clock::stopped());
        let bridge = switch.add_bridge("br0");
        let flow = |line: &str| -> Result<(), Box<dyn std::error::Error>> {
            let parsed = parse_flow_line(line, &flow::text::NoNames)?;
            bridge.flow_mod(&parsed.flow_mod).map(drop).map_err(|e| format!("{line}: {e:?}").into())
        };
        for n in 0..rules {
            let address = Ipv4Addr::from(10 << 24 | n);
            flow(&format!("cookie={},priority=10,ip,nw_src={address},actions=2", cookie * (n + 1)))?;
        }
        if stays {
            flow("priority=10,arp,actions=2")?;
        }
        let began = Instant::now();
        flow("delete ip")?;
        let deleted = began.elapsed();
        let is_done = AtomicBool::new(false);
        let (tidied, longest) = std::thread::scope(|scope| {
            let waiting = scope.spawn(|| longest_wait(&bridge, &is_done));
            let mut tidied = Duration::ZERO;
            // Other changes end a turn early; the revalidator has one every ten milliseconds.
            for _ in 0..TURNS {
                let began = Instant::now();
                switch.housekeeping();
                tidied += began.elapsed();
                std::thread::sleep(Duration::from_millis(1));
            }
            is_done.store(true, Ordering::SeqCst);
            (tidied, waiting.join().unwrap_or_default())
        });
        let ms = |time: Duration| (time.as_secs_f64() * 1e5).round() / 1e2;
        println!(
            "{}",
            json!({"table": kind, "flow_mod_ms": ms(deleted), "tidy_ms": ms(tidied), "longest_ms": ms(longest)})
        );
    }
    Ok(())
}

/// The longest time for which another change has to wait, until `is_done`.
fn longest_wait(bridge: &Ofproto, is_done: &AtomicBool) -> Duration {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else { return Duration::ZERO };
    let mut longest = Duration::ZERO;
    while !is_done.load(Ordering::SeqCst) {
        std::thread::sleep(Duration::from_micros(500));
        let began = Instant::now();
        drop(runtime.block_on(bridge.short_change()));
        longest = longest.max(began.elapsed());
    }
    longest
}
