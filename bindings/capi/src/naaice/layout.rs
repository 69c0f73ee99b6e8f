//! The structs of NAAICE's headers, byte by byte, on 64-bit machines.
//!
//! Programs read and write them, so they are touched through raw pointers only (`context`, `array`).

use std::{
    ffi::{c_char, c_void},
    mem::offset_of,
    sync::atomic::AtomicI32,
};

/// One of the structs of rdma-core that a context points to. This library has none of them.
pub(crate) type Opaque = *mut c_void;

/// `struct naaice_mr_local`: a region of this side.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MrLocal {
    pub ibv: Opaque,
    pub addr: *mut c_char,
    pub size: usize,
    pub to_write: bool,
    pub single_send: bool,
}

/// `struct naaice_mr_peer`: a region of the other side.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MrPeer {
    pub addr: u64,
    pub rkey: u32,
    pub size: usize,
    pub to_write: bool,
    pub single_send: bool,
}

/// `struct naaice_mr_internal`: a region that only the accelerator has.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MrInternal {
    pub addr: u64,
    pub size: usize,
}

/// `struct naaice_communication_context`, whose tail differs between the versions of the header.
macro_rules! context {
    ($(#[$doc:meta])* $name:ident { $($tail:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Debug)]
        pub(crate) struct $name {
            pub(crate) id: Opaque,
            pub(crate) ev_channel: Opaque,
            pub(crate) ibv_ctx: Opaque,
            pub(crate) pd: Opaque,
            pub(crate) comp_channel: Opaque,
            pub(crate) cq: Opaque,
            pub(crate) qp: Opaque,
            pub(crate) timeout: f64,
            pub(crate) retry_count: u8,
            pub(crate) max_inline_data: u16,
            pub(crate) state: AtomicI32,
            pub(crate) mr_local_data: *mut MrLocal,
            pub(crate) no_local_mrs: u8,
            pub(crate) mr_return_idx: u8,
            pub(crate) mr_peer_data: *mut MrPeer,
            pub(crate) no_peer_mrs: u8,
            pub(crate) mr_local_message: *mut MrLocal,
            pub(crate) mr_internal: *mut MrInternal,
            pub(crate) no_internal_mrs: u8,
            pub(crate) fncode: u8,
            $(pub(crate) $tail: $type,)*
        }
    };
}

context! {
    /// As on branch `main`.
    MainContext {
        naa_returncode: u8,
        rdma_writes_done: u8,
        bytes_received: u32,
        no_input_mrs: u8,
        no_output_mrs: u8,
        no_rpc_calls: u32,
        immediate: [u8; 4],
        connection_id: u8,
    }
}

context! {
    /// As on branch `next`.
    NextContext {
        response_user_immediate: u32,
        rdma_writes_done: u8,
        response_received: bool,
        bytes_received: u32,
        no_input_mrs: u8,
        no_output_mrs: u8,
        no_rpc_calls: u32,
        immediate: [u8; 4],
        connection_id: u8,
    }
}

/// What a program holds a pointer to; never looked at as such.
#[repr(C)]
#[derive(Debug)]
pub struct CommContext {
    _private: [u8; 0],
}

macro_rules! offsets {
    ($name:ident: $size:literal $(, $field:ident $at:literal)*) => {
        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(offset_of!($name, $field) == $at);)*
        };
    };
}

offsets!(MrLocal: 32, ibv 0, addr 8, size 16, to_write 24, single_send 25);
offsets!(MrPeer: 32, addr 0, rkey 8, size 16, to_write 24, single_send 25);
offsets!(MrInternal: 16, addr 0, size 8);
offsets!(
    MainContext: 144, id 0, ev_channel 8, ibv_ctx 16, pd 24, comp_channel 32, cq 40, qp 48, timeout 56,
    retry_count 64, max_inline_data 66, state 68, mr_local_data 72, no_local_mrs 80, mr_return_idx 81,
    mr_peer_data 88, no_peer_mrs 96, mr_local_message 104, mr_internal 112, no_internal_mrs 120, fncode 121,
    naa_returncode 122, rdma_writes_done 123, bytes_received 124, no_input_mrs 128, no_output_mrs 129,
    no_rpc_calls 132, immediate 136, connection_id 140
);
offsets!(
    NextContext: 152, id 0, ev_channel 8, ibv_ctx 16, pd 24, comp_channel 32, cq 40, qp 48, timeout 56,
    retry_count 64, max_inline_data 66, state 68, mr_local_data 72, no_local_mrs 80, mr_return_idx 81,
    mr_peer_data 88, no_peer_mrs 96, mr_local_message 104, mr_internal 112, no_internal_mrs 120, fncode 121,
    response_user_immediate 124, rdma_writes_done 128, response_received 129, bytes_received 132,
    no_input_mrs 136, no_output_mrs 137, no_rpc_calls 140, immediate 144, connection_id 148
);
