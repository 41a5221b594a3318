//! Instances with different key prefixes, which is a mistake: each prefix is a store of its own.

use example_production::{Orders, StoreSetting};

use crate::instance::{ORDER, TENANT, create, instance};
use crate::test_store;

/// The README warns of this.
#[tokio::test]
async fn under_different_prefixes_a_key_is_executed_twice() {
    let Some(store) = test_store::redis() else { return };
    let Some(other) = test_store::redis() else { return };
    let orders = Orders::default();
    for settings in [store.settings(), other.settings()] {
        let app = instance(&settings, orders.clone()).await;
        assert_eq!(create(&app, TENANT, "order-123", ORDER).await.status, 201);
    }
    assert_eq!(orders.lock().await.len(), 2);
}

#[tokio::test]
async fn with_empty_refuse_an_instance_with_another_prefix_does_not_start() {
    let Some(store) = test_store::redis() else { return };
    store.settings().store.open().await.unwrap();
    let [(_, url), (_, prefix)] = store.variables()[..] else { panic!("two variables") };
    let url = format!("{url}?empty=refuse");
    StoreSetting::new(&url, Some(prefix)).unwrap().open().await.unwrap();
    let wrong = StoreSetting::new(&url, Some("typo:")).unwrap().open().await;
    let error = wrong.err().expect("no store has this prefix").to_string();
    assert!(error.starts_with("ONCEWARD_STORE: ") && error.contains("prefix `typo`"), "{error}");
}
