//! Tokens by id, by hash and by parent.

use std::collections::{BTreeMap, BTreeSet};

use super::{Token, TokenHash, TokenId, TokenKind, TokenLimits};

/// All tokens but the root.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tokens {
    by_id: BTreeMap<TokenId, Token>,
    by_hash: BTreeMap<TokenHash, TokenId>,
    children: BTreeSet<(TokenId, TokenId)>,
}

impl Tokens {
    /// Puts `token` in, in the place of the one with its id. Ids of children are higher than their parents'.
    pub(crate) fn put(&mut self, token: Token) {
        self.remove(token.id);
        self.by_hash.insert(token.hash, token.id);
        self.children.insert((token.parent, token.id));
        self.by_id.insert(token.id, token);
    }

    pub(crate) fn remove(&mut self, id: TokenId) {
        if let Some(token) = self.by_id.remove(&id) {
            self.by_hash.remove(&token.hash);
            self.children.remove(&(token.parent, id));
        }
    }

    /// Returns the token with the number `id`.
    pub fn get(&self, id: TokenId) -> Option<&Token> {
        self.by_id.get(&id)
    }

    /// Returns the token whose text has the hash `hash`.
    pub fn find(&self, hash: &TokenHash) -> Option<&Token> {
        self.by_hash.get(hash).and_then(|id| self.by_id.get(id))
    }

    /// All tokens in ascending order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = &Token> {
        self.by_id.values()
    }

    /// Returns the tokens that were made with the token `id`, in ascending order of their numbers.
    pub fn children(&self, id: TokenId) -> impl Iterator<Item = &Token> {
        let range = (id, TokenId(0))..=(id, TokenId(u32::MAX));
        self.children.range(range).filter_map(|(_, child)| self.by_id.get(child))
    }

    /// The token, its parent, and so on, without the root.
    pub fn line(&self, id: TokenId) -> impl Iterator<Item = &Token> {
        std::iter::successors(self.by_id.get(&id), |token| self.by_id.get(&token.parent))
    }

    /// Whether `id` is `above` or lies below it.
    pub fn is_within(&self, id: TokenId, above: TokenId) -> bool {
        above == TokenId::ROOT || self.line(id).any(|token| token.id == above)
    }

    /// The token and all below it.
    pub fn subtree(&self, id: TokenId) -> BTreeSet<TokenId> {
        let mut all = BTreeSet::from([id]);
        let mut next = vec![id];
        while let Some(id) = next.pop() {
            for child in self.children(id) {
                if all.insert(child.id) {
                    next.push(child.id);
                }
            }
        }
        all
    }

    /// The limits that hold for a token: its own and its parents'.
    pub fn limits(&self, id: TokenId) -> TokenLimits {
        self.line(id).fold(TokenLimits::default(), |least, token| least.least(token.limits))
    }

    /// How many tokens that `CreateToken` made there are within `id`.
    pub(crate) fn created_within(&self, id: TokenId) -> usize {
        let made = |token: &&Token| token.kind == TokenKind::Created && self.is_within(token.id, id);
        self.iter().filter(made).count()
    }
}
