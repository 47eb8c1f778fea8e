//! The server and the client on a real socket.

use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use unixctl::{Call, Client, Commands, OutputFormat, Server};

/// A served set of commands; dropping it ends the server.
struct Served {
    path: PathBuf,
    _directory: tempfile::TempDir,
    _end: tokio::sync::oneshot::Sender<()>,
}

fn served() -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("test.ctl");
    let commands = Commands::new("test (Open vSwitch) 1.2.3\n");
    commands.register("echo", "[ARG]...", 0..=3, |args| Ok(args.join(" ")));
    commands.register("refuse", "", 0..=0, |_| Err("refused".to_owned()));
    let mut count = 0;
    commands.register_mut("count", "", 0..=0, move |_| {
        count += 1;
        Ok(count.to_string())
    });
    commands.register_async("later", "", 0..=0, |_| async {
        tokio::task::yield_now().await;
        Ok("late".to_owned())
    });
    commands.register_call("forget", "", 0..=0, drop);
    commands.register_list("r/list", "re");
    commands.register_call("shape", "", 0..=0, |call: Call| match call.format() {
        OutputFormat::Json => call.reply_json(json!({"sides": 3})),
        OutputFormat::Text => call.reply(Ok("triangle".to_owned())),
    });
    let server = Server::bind(&path, commands).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    std::thread::spawn(move || {
        runtime.block_on(async {
            tokio::select! {
                served = server.run() => served.unwrap(),
                _ = ended => {}
            }
        });
    });
    Served { path, _directory: directory, _end: end }
}

fn call(client: &mut Client, words: &[&str]) -> Result<Value, String> {
    let args: Vec<String> = words[1..].iter().map(|word| (*word).to_owned()).collect();
    client.call(words[0], &args).unwrap()
}

#[test]
fn commands_answer() {
    let served = served();
    let mut client = Client::connect(&served.path).unwrap();
    assert_eq!(call(&mut client, &["version"]), Ok(json!("test (Open vSwitch) 1.2.3")));
    assert_eq!(call(&mut client, &["echo", "a", "b"]), Ok(json!("a b")));
    let listed = format!("The available commands are:\n  {:<23} \n", "refuse");
    assert_eq!(call(&mut client, &["r/list"]), Ok(json!(listed)));
    assert_eq!(call(&mut client, &["echo"]), Ok(json!("")));
    assert_eq!(call(&mut client, &["count"]), Ok(json!("1")));
    assert_eq!(call(&mut client, &["count"]), Ok(json!("2")));
    assert_eq!(call(&mut client, &["later"]), Ok(json!("late")));
    assert_eq!(call(&mut client, &["refuse"]), Err("refused".to_owned()));
    assert_eq!(call(&mut client, &["forget"]), Err("\"forget\" command was not answered".to_owned()));
    assert_eq!(
        call(&mut client, &["bogus"]),
        Err("\"bogus\" is not a valid command (use \"list-commands\" to see a list of valid commands)".to_owned())
    );
    assert_eq!(call(&mut client, &["version", "x"]), Err("\"version\" command takes at most 0 arguments".to_owned()));
    let list = call(&mut client, &["list-commands"]).unwrap();
    assert!(
        list.as_str().unwrap().starts_with(
            "The available commands are:\n  count                   \n  echo                    [ARG]...\n"
        )
    );
}

#[test]
fn json_replies() {
    let served = served();
    let mut client = Client::connect(&served.path).unwrap();
    assert_eq!(call(&mut client, &["set-options", "--format", "json"]), Ok(json!("")));
    assert_eq!(call(&mut client, &["echo", "a"]), Ok(json!({"reply-format": "plain", "reply": "a"})));
    assert_eq!(call(&mut client, &["shape"]), Ok(json!({"sides": 3})));
    assert_eq!(call(&mut client, &["list-commands"]).unwrap()["echo"], "[ARG]...");
    assert!(call(&mut client, &["set-options", "--format", "xml"]).is_err());
    let mut other = Client::connect(&served.path).unwrap();
    assert_eq!(call(&mut other, &["shape"]), Ok(json!("triangle")));
}

/// Returns the server's output for raw bytes until it closes the connection.
fn raw(path: &Path, bytes: &[u8]) -> String {
    let mut stream = unixctl::socket::connect(path).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_malformed_message_ends_its_own_connection_only() {
    let served = served();
    let mut client = Client::connect(&served.path).unwrap();
    assert_eq!(raw(&served.path, b"hello"), "");
    assert_eq!(
        raw(&served.path, b"{\"method\":\"echo\",\"params\":[\"a\"],\"id\":9}[]"),
        r#"{"id":9,"result":"a","error":null}"#
    );
    assert_eq!(
        raw(&served.path, b"{\"method\":\"echo\",\"params\":[1],\"id\":[1]}{]"),
        r#"{"id":[1],"result":null,"error":"\"echo\" command has non-string argument"}"#
    );
    assert_eq!(call(&mut client, &["echo", "still here"]), Ok(json!("still here")));
}
