//! `naa lb tokens`.

use std::collections::BTreeSet;

use clap::Subcommand;
use ejfat_client::{
    Connection,
    messages::{self as pb, token_permission, token_selector},
};
use naa_measure::TextTable;
use serde_json::{Value, json};

use super::At;
use crate::show;

pub(super) const EXAMPLES: &str = "Examples:
  naa lb tokens create operator reservation:4:update
  naa lb tokens create experiment load_balancer::reserve       any load balancer
  naa lb tokens show                                           what this token may do
  naa lb tokens list                                           the tokens that were made with this one
  naa lb tokens revoke 17                                      also revokes all tokens that were made with it

A permission is TYPE:ID:RIGHT. Types are all, load_balancer, reservation and session; without an ID a \
permission is for all resources of the type. Rights are read_only, register, reserve and update; update includes the others. \
A new token is printed once, and cannot be shown again.";

#[derive(Clone, Debug, Subcommand)]
pub(in crate::lb) enum Command {
    /// Make a token
    #[command(after_help = "Examples:\n  naa lb tokens create operator reservation:4:update")]
    Create {
        /// A name for people
        name: String,
        /// A permission of the token, as reservation:4:update; repeat for more
        #[arg(value_name = "TYPE:ID:RIGHT", required = true, value_parser = permission)]
        permissions: Vec<pb::TokenPermission>,
        #[command(flatten)]
        at: At,
    },
    /// Show the permissions of a token
    #[command(after_help = "Examples:\n  naa lb tokens show\n  naa lb tokens show 17")]
    Show(OfToken),
    /// List the tokens that were made with a token
    #[command(after_help = "Examples:\n  naa lb tokens list")]
    List(OfToken),
    /// Revoke a token, and all tokens that were made with it
    #[command(after_help = "Examples:\n  naa lb tokens revoke 17")]
    Revoke {
        /// The token's number
        #[arg(value_name = "NUMBER", value_parser = number)]
        token: u32,
        #[command(flatten)]
        at: At,
    },
}

#[derive(Clone, Debug, clap::Args)]
pub(in crate::lb) struct OfToken {
    /// The token's number; 0: the one of the URI
    #[arg(value_name = "NUMBER", default_value_t = 0, value_parser = number)]
    token: u32,
    #[command(flatten)]
    at: At,
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is not a token's number; `naa lb tokens list` shows names and numbers")
    })
}

fn permission(text: &str) -> Result<pb::TokenPermission, String> {
    use token_permission::{PermissionType, ResourceType};
    let wrong = || format!("{text:?} is no permission; write TYPE:ID:RIGHT, as in reservation:4:update");
    let [kind, id, right]: [&str; 3] = text.split(':').collect::<Vec<_>>().try_into().map_err(|_| wrong())?;
    let kind = ResourceType::from_str_name(&kind.to_ascii_uppercase()).ok_or_else(wrong)?;
    let right = PermissionType::from_str_name(&right.to_ascii_uppercase()).ok_or_else(wrong)?;
    Ok(pb::TokenPermission {
        resource_type: kind.into(),
        resource_id: id.to_owned(),
        permission: right.into(),
    })
}

fn named(of: &pb::TokenPermission) -> String {
    let (kind, right) = (of.resource_type().as_str_name(), of.permission().as_str_name());
    format!("{kind}:{}:{right}", of.resource_id).to_ascii_lowercase()
}

fn object(of: &pb::TokenDetails) -> Value {
    json!({
        "id": of.id, "name": of.name, "created": of.created_at,
        "permissions": of.permissions.iter().map(named).collect::<Vec<_>>(),
    })
}

fn table(all: &[pb::TokenDetails]) -> String {
    let rows = all.iter().map(|of| {
        let permissions: Vec<_> = of.permissions.iter().map(named).collect();
        [of.id.to_string(), of.name.clone(), of.created_at.clone(), permissions.join(" ")]
    });
    TextTable::of(["number", "name", "created", "permissions"], rows)
}

fn selector(id: u32) -> pb::TokenSelector {
    pb::TokenSelector { token_selector: Some(token_selector::TokenSelector::Id(id)) }
}

pub(super) fn run(command: &Command) -> anyhow::Result<()> {
    match command {
        Command::Create { name, permissions, at } => {
            let (_, connection) = at.connect()?;
            let created = connection.create_token(name, permissions.clone())?;
            // The reply has no number.
            let own = connection.with_token(&created.token).ok();
            let own = own.and_then(|own| own.list_token_permissions(selector(0)).ok());
            let id = own.and_then(|own| own.token).map(|own| own.id);
            if let Some(id) = id.filter(|_| !at.json) {
                show::note(&format!("the token has the number {id}; `naa lb tokens revoke {id}` revokes it"));
            }
            let object = json!({ "id": id, "token": created.token, "uri": created.ejfat_uri });
            at.done(&object, || created.token.clone())
        }
        Command::Show(OfToken { token, at }) => {
            let (_, connection) = at.connect()?;
            let of = connection.list_token_permissions(selector(*token))?.token.unwrap_or_default();
            at.done(&object(&of), || table(std::slice::from_ref(&of)))
        }
        Command::List(OfToken { token, at }) => {
            let (_, connection) = at.connect()?;
            let all = connection.list_child_tokens(selector(*token))?.tokens;
            at.done(&json!({ "tokens": all.iter().map(object).collect::<Vec<_>>() }), || {
                if all.is_empty() { "no tokens were made with this one".to_owned() } else { table(&all) }
            })
        }
        Command::Revoke { token, at } => {
            let (_, connection) = at.connect()?;
            let of = reservations_of(&connection, *token);
            connection.revoke_token(selector(*token))?;
            let go_on: Vec<_> = of.into_iter().filter(|lb| connection.get(lb).is_ok()).collect();
            at.done(&json!({ "revoked": token, "go_on": go_on }), || {
                let line = |lb| format!("\nreservation {lb} goes on; `naa lb free --lb {lb}` ends it");
                format!("token {token} is revoked{}", go_on.iter().map(line).collect::<String>())
            })
        }
    }
}

/// Returns the reservations that a token, or one that was made with it, has rights on. There are none if they cannot be found out.
fn reservations_of(connection: &Connection, token: u32) -> BTreeSet<String> {
    let own = connection.list_token_permissions(selector(token)).ok().and_then(|own| own.token);
    let children = connection.list_child_tokens(selector(token)).map(|all| all.tokens).unwrap_or_default();
    let permissions = own.into_iter().chain(children).flat_map(|of| of.permissions);
    let of_reservations = permissions
        .filter(|of| of.resource_type() == token_permission::ResourceType::Reservation)
        .map(|of| of.resource_id);
    of_reservations.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_no_number_of_a_token() {
        assert_eq!(number("17"), Ok(17));
        assert!(number("hall-b").unwrap_err().contains("naa lb tokens list"));
    }

    #[test]
    fn permissions_are_read_as_they_are_written() {
        for text in
            ["all::update", "load_balancer:3:reserve", "reservation:4:read_only", "session:9:register"]
        {
            assert_eq!(named(&permission(text).unwrap()), text);
        }
        for wrong in ["", "all", "all:update", "everything::update", "all::own", "a:b:c:d"] {
            assert!(permission(wrong).is_err(), "{wrong}");
        }
    }
}
