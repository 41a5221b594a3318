//! Sentences about the home regions of keys.

use super::super::region::{Regions, UnnamedKeys};
use super::super::words::{code, codes, list};
use super::EXAMPLE_KEY;

pub(super) fn sentences(regions: &Regions) -> Vec<String> {
    let names = list(&codes(&regions.names));
    let mut sentences = vec![format!(
        "The API runs in several regions: {names}. A key that names one of them belongs to it, and \
         its request is executed there only."
    )];
    if let Some(separator) = &regions.separator {
        let example = code(&format!("{}{EXAMPLE_KEY}", regions.prefix()));
        sentences.push(format!(
            "A key begins with its region and {}, as in {example}. Choose the region when you create \
             the key, and never change it between attempts: that would be another key.",
            code(separator)
        ));
    }
    sentences.push(match &regions.unnamed {
        UnnamedKeys::Refused => "A key without a region is refused.".to_owned(),
        UnnamedKeys::BelongTo(home) => format!("A key without a region belongs to {}.", code(home)),
        UnnamedKeys::ExecutedAnywhere => {
            "A key without a region is known only to the region that it reaches: **a retry that \
             reaches another one is executed again**."
                .to_owned()
        }
    });
    sentences.push(match regions.forwards {
        true => "You may send a request, and each retry, to any region: it is passed on to the \
                 region of its key."
            .to_owned(),
        false => {
            "Send a request, and each retry, to the region of its key. Another region refuses \
                  it with 421, and names the right address in `Location`."
                .to_owned()
        }
    });
    sentences
}
