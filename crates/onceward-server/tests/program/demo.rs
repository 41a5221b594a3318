//! The commands that the demo prints give the results that it names.

use std::process::Command;

use crate::process::Program;

fn shell(command: &str) -> String {
    let output = Command::new("bash").args(["-c", command]).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn the_commands_that_the_demo_prints_give_what_it_says() {
    let demo = Program::start(&["demo", "--listen", "127.0.0.1:0"], "Ctrl-C stops both.");
    let commands: Vec<&str> =
        demo.printed.lines().filter(|line| line.starts_with(['c', 's'])).collect();
    let [first, again, changed, twenty, count] = commands[..] else { panic!("{commands:?}") };

    let created = shell(first);
    assert!(created.starts_with("HTTP/1.1 201") && !created.contains("replayed"), "{created}");
    let replayed = shell(again);
    assert!(replayed.starts_with("HTTP/1.1 201"), "{replayed}");
    assert!(replayed.contains("idempotent-replayed: true"), "{replayed}");
    assert_eq!(created.lines().last(), replayed.lines().last());
    let refused = shell(changed);
    assert!(refused.starts_with("HTTP/1.1 422") && refused.contains("body:/amount"), "{refused}");
    let counted: Vec<_> = shell(twenty).split_whitespace().map(str::to_owned).collect();
    assert_eq!(counted, ["1", "201", "19", "409"]);
    assert_eq!(shell(count).trim(), "{\"orders\":2}");

    demo.signal("-INT");
    let (success, printed) = demo.wait();
    assert!(success && printed.contains("2 orders"), "{printed}");
}
