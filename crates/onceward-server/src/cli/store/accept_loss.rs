//! `onceward store accept-loss`

use clap::Args;

use crate::admin::AcceptLoss;
use crate::cli::Fallible;
use crate::cli::confirm::confirm;
use crate::cli::output;
use crate::cli::target::Target;

#[derive(Debug, Args)]
pub(crate) struct AcceptLossArgs {
    /// Why lost keys are not sent again, or may run again; for the audit log, must not contain
    /// secrets
    #[arg(long, value_name = "TEXT")]
    reason: String,
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    target: Target,
}

impl AcceptLossArgs {
    pub(super) async fn execute(self) -> Fallible {
        let Self { reason, yes, target } = self;
        let change = format!(
            "Claims will be granted again: a lost key counts as new, and runs again if a client \
             sends it again\nreason: {}",
            output::plain(&reason)
        );
        confirm(&change, yes)?;
        let done = target.admin().await?.accept_loss(&AcceptLoss { reason }).await?;
        if target.json {
            return output::json(&done);
        }
        output::line(match done.reopened {
            true => "the loss is accepted: claims are granted again",
            false => "nothing was lost: claims are granted as before",
        })
    }
}
