//! A result that survives the process: run it twice, and the second run replays it.

use onceward::{Engine, Failure, Fingerprint, Intent, Key, Scope};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let data = std::env::temp_dir().join("onceward-survives");
    let store = onceward::stores::connect(&format!("file:{}", data.display())).await?;
    let engine = Engine::new(store);
    let intent = Intent::new(
        Scope::new("acme", "checkout", "payments.create")?,
        Key::new("order-1017")?,
        Fingerprint::of_value(&4200)?,
    );
    let charged = engine
        .run(&intent, async |_grant| Ok::<_, Failure<String>>("receipt 4711".to_owned()))
        .await?;
    println!("{} (replayed: {})", charged.value, charged.replayed);
    Ok(())
}
