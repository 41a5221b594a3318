//! Executes the walk of the runbook as it is written.

use std::fs::{self, File};
use std::process::Stdio;

use crate::counting_service::CountingService;
use crate::process::Program;
use crate::transcript::Transcript;

const RUNBOOK: &str = include_str!("../../../../docs/runbook.md");
const TOKEN: &str = "night-token-0123456789";

#[test]
fn the_night_of_the_runbook_goes_as_it_says() {
    let (service, directory) = (CountingService::open(), tempfile::tempdir().unwrap());
    let (config, log) =
        (directory.path().join("onceward.toml"), directory.path().join("gateway.log"));
    let settings = format!(
        "[[listeners]]\naddress = \"127.0.0.1:0\"\n[upstream]\nurl = \"http://{}\"\n\
         [store]\nurl = \"file:{}\"\n[admin]\naddress = \"127.0.0.1:0\"\n\
         [scope]\nsingle_tenant = true\n\
         [[operations]]\nname = \"payments.create\"\nroute = \"/payments/{{how}}\"\n\
         [[tokens]]\nname = \"olga\"\nrole = \"operator\"\nsecret_env = \"NIGHT_TOKEN\"\n",
        service.address,
        directory.path().join("records").display()
    );
    fs::write(&config, settings).unwrap();
    fs::write(directory.path().join("reply.json"), "{\"charge\":\"ch_17\"}").unwrap();
    let arguments = ["gateway", "--config", config.to_str().unwrap()];
    let logs = Stdio::from(File::create(log).unwrap());
    let gateway = Program::start_with(&arguments, "metrics at", logs, &[("NIGHT_TOKEN", TOKEN)]);

    let listens = format!("http://{}", gateway.address());
    let admin = gateway.printed.split("metrics at ").nth(1).unwrap();
    let admin = admin.split("/metrics").next().unwrap();
    let names = [("http://127.0.0.1:8080", listens.as_str()), ("http://127.0.0.1:9090", admin)];
    let operator = [("ONCEWARD_ADMIN", admin), ("ONCEWARD_TOKEN", TOKEN), ("USER", "olga")];
    let walk = Transcript::below("## A night", RUNBOOK);
    let printed = walk.run(directory.path(), &names, &operator);
    println!("{printed}");
    assert_eq!(service.effects("order-1017"), 1, "{printed}");
}
