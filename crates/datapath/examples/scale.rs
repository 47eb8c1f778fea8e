//! How packet threads scale: `scale [SECONDS [WAY]]` plays packets from memory on one thread and on two, each pinned
//! to a core, for several ways in which two threads share state (or only for the one with number WAY, from 0), and
//! prints nanoseconds of processor time a packet, in lines of JSON. Time is measured in slices; the program prints the
//! cheapest slice and the median, as other load on the machine only adds to them. If a packet costs f times as much on
//! two threads, their throughput is 2/f times that of one.
//!
//! The last way is two processes at the same time, of one thread each, on two cores: they share nothing but the machine,
//! so they show how much of that factor is the machine's.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use base::{Clock, DpPort};
use datapath::{Config, Datapath};
use dpif::{
    ControllerUpcall, Cpu, DpAction, DpFlow, DpFlowStats, FlowId, ThreadConfig, Upcall, UpcallHandler, UpcallReply,
};
use flow::{Field, FlowKey};
use netdev::Options;
use packet::Packet;

/// Flows of a port, by the last byte of the destination address, and streams of each flow.
const FLOWS: u8 = 16;
const STREAMS: u8 = 16;

/// The output port of packets, by their ingress port.
type To = fn(DpPort) -> DpPort;

/// Forwards packets from each port to another one.
#[derive(Debug)]
struct Wires {
    to: To,
    next_id: AtomicU64,
}

impl UpcallHandler for Wires {
    fn miss(&self, upcall: Upcall<'_>) -> UpcallReply {
        let mut mask = FlowKey::mask_of(Field::InPortOxm);
        mask.add_mask(Field::EthType, u128::MAX);
        mask.add_mask(Field::Ipv4Dst, u128::MAX);
        let actions: Arc<[DpAction]> = [DpAction::Output((self.to)(upcall.port))].into();
        let flow = DpFlow::by_hand(upcall.key, &mask, actions.clone(), 0);
        let id = FlowId(self.next_id.fetch_add(1, Ordering::Relaxed));
        UpcallReply { actions, install: Some((id, flow)) }
    }

    fn controller(&self, _port: DpPort, _what: &ControllerUpcall, _packet: &Packet) {}

    fn flow_gone(&self, _id: FlowId, _stats: DpFlowStats) {}
}

fn frames() -> Vec<Packet> {
    let mut frames = Vec::new();
    for stream in 0..STREAMS {
        for flow in 0..FLOWS {
            let mut frame = [&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0][..]].concat();
            frame.extend([0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, flow]);
            frame.extend([4, stream, 0, 9, 0, 26, 0, 0]);
            frame.resize(60, 0);
            frames.push(Packet::from_slice(&frame));
        }
    }
    frames
}

/// A slice of a measurement.
const SLICE: Duration = Duration::from_millis(40);

/// Nanoseconds that packet threads have run on processors (/proc/PID/task/TID/schedstat).
fn on_processors_ns() -> u64 {
    let tasks = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of = |path: std::path::PathBuf| {
        let name = std::fs::read_to_string(path.join("comm")).ok()?;
        let spent = std::fs::read_to_string(path.join("schedstat")).ok()?;
        if name.starts_with("packet") { spent.split(' ').next()?.parse::<u64>().ok() } else { None }
    };
    tasks.filter_map(|task| of(task.path())).sum()
}

/// Nanoseconds a packet.
#[derive(Clone, Copy, Debug)]
struct Cost {
    cheapest: f64,
    median: f64,
}

/// A datapath whose packet threads poll.
struct Running {
    dp: Datapath,
}

/// Starts packet threads on `cores`, which poll `ports` ports of `queues` queues each and send to the port that `to`
/// returns.
fn start(cores: &[usize], (ports, queues): (u32, usize), to: To, pcap: &str) -> Running {
    let dp = Datapath::new(Config::default(), Clock::real()).expect("starts");
    dp.set_handler(Arc::new(Wires { to, next_id: AtomicU64::new(1) }));
    for port in 0..ports {
        let options: Options = [("pcap".to_owned(), pcap.to_owned()), ("n_rxq".to_owned(), queues.to_string())].into();
        let device = netdev::memory::open(&format!("in{port}"), "replay", &options).expect("opens");
        let null = netdev::memory::null(&format!("out{port}")).expect("opens");
        dp.port_add(null, Some(DpPort(10 + port))).expect("opens");
        dp.port_add(device, Some(DpPort(1 + port))).expect("opens");
    }
    for port in 0..ports {
        let core = |queue| cores[(port as usize + queue) % cores.len()];
        let affinity = (0..queues).map(|queue| (queue, core(queue))).collect();
        dp.port_set_queues(DpPort(1 + port), &affinity).expect("there");
    }
    let cpus = cores.iter().map(|core| Cpu { core: *core, numa: 0 }).collect();
    dp.set_threads(&ThreadConfig { cpus, ..ThreadConfig::default() }).expect("starts");
    Running { dp }
}

impl Running {
    fn measure(&self, time: Duration) -> Cost {
        let packets = || self.dp.thread_stats().iter().map(|t| t.packets).sum::<u64>();
        let start = Instant::now();
        let mut slices = Vec::new();
        while start.elapsed() < time {
            let (packets_before, ns_before) = (packets(), on_processors_ns());
            std::thread::sleep(SLICE);
            let (packets, ns) = (packets() - packets_before, on_processors_ns() - ns_before);
            slices.push(ns as f64 / packets.max(1) as f64);
        }
        slices.sort_by(f64::total_cmp);
        Cost { cheapest: slices[0], median: slices[slices.len() / 2] }
    }
}

/// The word that makes this program one of the processes of the last way.
const ALONE: &str = "alone";

/// One of two processes: one thread on `core`. It measures when a line arrives, and polls until its input ends, so that
/// the other one is never alone on the machine while it measures.
fn alone(time: Duration, core: usize, pcap: &str) {
    let running = start(&[core], (1, 1), |from| DpPort(from.0 + 9), pcap);
    std::thread::sleep(time / 4);
    println!("ready");
    let mut input = std::io::stdin().lock();
    let _ = input.read_line(&mut String::new());
    let Cost { cheapest, median } = running.measure(time);
    println!("{cheapest} {median}");
    let _ = input.read_to_end(&mut Vec::new());
}

/// The mean cost in two processes at the same time.
fn two_processes(time: Duration, pcap: &str) -> Result<Cost, Box<dyn std::error::Error>> {
    let program = std::env::current_exe()?;
    let spawn = |core: usize| -> std::io::Result<Child> {
        let words = [time.as_secs_f64().to_string(), ALONE.to_owned(), core.to_string(), pcap.to_owned()];
        Command::new(&program).args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()
    };
    let mut children = [spawn(0)?, spawn(1)?];
    let mut outputs = Vec::new();
    for child in &mut children {
        outputs.push(BufReader::new(child.stdout.take().ok_or("a process without output")?).lines());
    }
    let mut next = || -> Result<Vec<String>, Box<dyn std::error::Error>> {
        outputs.iter_mut().map(|lines| Ok(lines.next().ok_or("a process ended too early")??)).collect()
    };
    next()?;
    for child in &mut children {
        std::io::Write::write_all(child.stdin.as_mut().ok_or("a process without input")?, b"\n")?;
    }
    let mut mean = Cost { cheapest: 0.0, median: 0.0 };
    for line in next()? {
        let (cheapest, median) = line.split_once(' ').ok_or("a process without figures")?;
        mean.cheapest += cheapest.parse::<f64>()? / 2.0;
        mean.median += median.parse::<f64>()? / 2.0;
    }
    for mut child in children {
        // Closes its input first.
        child.wait()?;
    }
    Ok(mean)
}

fn print(way: &str, Cost { cheapest, median }: Cost) {
    println!("{{\"way\": \"{way}\", \"cheapest_ns\": {cheapest:.1}, \"median_ns\": {median:.1}}}");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let time = Duration::from_secs_f64(arguments.first().map_or(Ok(2.0), |text| text.parse())?);
    if let [_, word, core, pcap] = &arguments[..]
        && word == ALONE
    {
        alone(time, core.parse()?, pcap);
        return Ok(());
    }
    let only = arguments.get(1).map(|text| text.parse::<usize>()).transpose()?;
    let pcap = std::env::temp_dir().join(format!("scale-{}.pcap", std::process::id()));
    let mut writer = netdev::pcap::Writer::append(&pcap)?;
    frames().iter().try_for_each(|frame| writer.write(frame.data()))?;
    drop(writer);
    let path = pcap.to_str().ok_or("the temporary folder's name")?;
    let own: To = |from| DpPort(from.0 + 9);
    let one: To = |_| DpPort(10);
    let ways = [
        ("one thread", 1, (1, 1), own),
        ("two threads, a port in and out each", 2, (2, 1), own),
        ("two threads, a port in each, one port out", 2, (2, 1), one),
        ("two threads, a queue of one port each, and its flows", 2, (1, 2), own),
    ];
    let is_wanted = |number| only.is_none_or(|only| only == number);
    for (_, (way, threads, ports, to)) in (0..).zip(ways).filter(|(number, _)| is_wanted(*number)) {
        let running = start(&[0, 1][..threads], ports, to, path);
        std::thread::sleep(time / 4);
        print(way, running.measure(time));
    }
    if is_wanted(ways.len()) {
        print("two processes, a port in and out each", two_processes(time, path)?);
    }
    std::fs::remove_file(&pcap)?;
    Ok(())
}
