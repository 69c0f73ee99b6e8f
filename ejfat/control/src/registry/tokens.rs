//! Requests about tokens.

use std::{collections::BTreeSet, time::Duration};

use super::{
    Plan, RandomBytes, Registry,
    authority::{Authority, ROOT_PERMISSIONS, asked_permissions},
};
use crate::{
    durable::Ending,
    record::Counter,
    request::{CreateToken, CreatedToken, Moment, Refusal, RefusalKind, Reply, TokenDetails, TokenSelector},
    reservation::{check_label, shown},
    token::{Permission, Scope, Token, TokenId, TokenKind, TokenLimits},
};

impl Registry {
    pub(super) fn create_token(
        &self,
        at: Moment,
        by: &Authority<'_>,
        create: &CreateToken,
        random: RandomBytes<'_>,
    ) -> Result<Plan, Refusal> {
        check_label("token", &create.name)?;
        let permissions = asked_permissions(create)?;
        permissions.iter().try_for_each(|permission| self.check_exists(permission.scope))?;
        let limits = self.check_limits(by.id, create.limits)?;
        self.check_room(by.id)?;
        let id = self.next_token()?;
        let (token, changes) = self.mint(random, |hash| Token {
            id,
            parent: by.id,
            kind: TokenKind::Created,
            name: create.name.clone(),
            hash,
            permissions: permissions.clone(),
            limits,
            created: at.wall,
        })?;
        let texts: Vec<_> = permissions.iter().map(Permission::to_string).collect();
        let what = format!("token {id} {} with {}", shown(&create.name), texts.join(", "));
        Ok(Plan::change(Reply::Token(CreatedToken { token, id }), changes.into(), what))
    }

    /// A permission for what does not exist would be one for what comes later.
    fn check_exists(&self, scope: Scope) -> Result<(), Refusal> {
        let exists = match scope {
            Scope::All | Scope::LoadBalancers => true,
            Scope::LoadBalancer(lb) => self.config.load_balancer(lb).is_some(),
            Scope::Reservation(id) => self.durable.reservation(id).is_some(),
            Scope::Session(id) => self.durable.session(id).is_some(),
        };
        if exists {
            Ok(())
        } else {
            Err(Refusal::not_found("a permission is for something that does not exist"))
        }
    }

    fn check_limits(&self, parent: TokenId, asked: TokenLimits) -> Result<TokenLimits, Refusal> {
        // Records have milliseconds.
        let longest = asked.longest.map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        let asked = TokenLimits { longest: longest.map(Duration::from_millis), ..asked };
        let least = self.durable.tokens.limits(parent).least(asked);
        // What is asked for has to be the least of all.
        let exceeds = asked.reservations.is_some_and(|asked| least.reservations != Some(asked))
            || asked.longest.is_some_and(|asked| least.longest != Some(asked));
        if exceeds {
            return Err(Refusal::denied(
                "the new token's limits exceed those of the calling token; ask for less, or for none",
            ));
        }
        Ok(asked)
    }

    fn check_room(&self, parent: TokenId) -> Result<(), Refusal> {
        let tokens = &self.durable.tokens;
        if tokens.line(parent).count() >= self.config.most_depth {
            let most = self.config.most_depth;
            return Err(Refusal::exhausted(format!(
                "there are {most} tokens from the root to this one already, which is the most"
            )));
        }
        if tokens.created_within(TokenId::ROOT) >= self.config.most_tokens {
            return Err(Refusal::exhausted("there are as many tokens as the site allows; revoke some"));
        }
        let most = self.config.most_tokens_below;
        // The token itself does not count.
        if tokens.line(parent).any(|above| {
            tokens.created_within(above.id) - usize::from(above.kind == TokenKind::Created) >= most
        }) {
            return Err(Refusal::exhausted(format!(
                "there are {most} tokens below the calling one or a parent; revoke some"
            )));
        }
        Ok(())
    }

    /// The id of the next token.
    pub(super) fn next_token(&self) -> Result<TokenId, Refusal> {
        let next = u32::try_from(self.durable.next(Counter::Token)).ok().filter(|next| *next < u32::MAX);
        next.map(TokenId).ok_or_else(|| Refusal::exhausted("there are no more ids for tokens"))
    }

    pub(super) fn token_details(
        &self,
        by: &Authority<'_>,
        selector: &TokenSelector,
    ) -> Result<Plan, Refusal> {
        let id = self.select(by, selector)?;
        let details = match self.durable.tokens.get(id) {
            Some(token) => self.details(token),
            None => TokenDetails {
                id: TokenId::ROOT,
                name: "root".to_owned(),
                permissions: ROOT_PERMISSIONS.to_vec(),
                limits: TokenLimits::default(),
                created: None,
            },
        };
        Ok(Plan::read(Reply::TokenDetails(Box::new(details))))
    }

    pub(super) fn child_tokens(&self, by: &Authority<'_>, selector: &TokenSelector) -> Result<Plan, Refusal> {
        let id = self.select(by, selector)?;
        let children = self.durable.tokens.children(id).map(|token| self.details(token));
        Ok(Plan::read(Reply::ChildTokens(children.collect())))
    }

    fn details(&self, token: &Token) -> TokenDetails {
        TokenDetails {
            id: token.id,
            name: token.name.clone(),
            permissions: token.permissions.clone(),
            limits: self.durable.tokens.limits(token.id),
            created: Some(token.created),
        }
    }

    pub(super) fn revoke(&self, by: &Authority<'_>, selector: &TokenSelector) -> Result<Plan, Refusal> {
        let id = self.select(by, selector)?;
        if id == TokenId::ROOT {
            let why = "the root token is the control plane's configuration; change it there";
            return Err(Refusal::new(RefusalKind::FailedPrecondition, why));
        }
        let changes = self.durable.end(Ending { tokens: BTreeSet::from([id]), ..Ending::default() });
        Ok(Plan::change(Reply::Done, changes, format!("token {id} and all below it")))
    }
}
