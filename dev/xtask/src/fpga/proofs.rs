//! The proofs of the RTL. A new one needs a harness in `fpga/formal` and an entry here.

/// A proof: its harness, what it shows, and the mistakes with which it must fail.
#[derive(Debug)]
pub(super) struct Proof {
    /// The module with the assertions, in `fpga/formal`, in the file of the same name.
    pub(super) harness: &'static str,
    /// Values for its parameters.
    pub(super) parameters: &'static [(&'static str, u64)],
    /// The modules of which only the ports are in the proof, so that their outputs may have any values.
    pub(super) hollow: &'static [&'static str],
    /// Which values memories give when they are read.
    pub(super) memories: Memories,
    /// What is proved, in a few words.
    pub(super) shows: &'static str,
    /// The number of cycles over which the induction goes. The proof is about all cycles after a reset, which may come in any state.
    pub(super) depth: u32,
    /// The number of cycles in which all cover statements are reached. If the induction also succeeds with a mutant, a counterexample is
    /// searched in this number of cycles.
    pub(super) reach: u32,
    pub(super) mutants: &'static [Mutant],
}

/// Which values the larger memories of a module give in a proof. Memories with few entries always give what was written to them.
#[derive(Debug, Clone, Copy)]
pub(super) enum Memories {
    /// The values that were written.
    Exact,
    /// Any value at each read. What is proved for any value is also true for the values that were written, and the solver is much faster.
    Any,
}

/// A mistake in a module: a text that occurs once in its file, and the text that takes its place.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) module: &'static str,
    pub(super) from: &'static str,
    pub(super) to: &'static str,
}

impl Proof {
    /// The harness and its parameters.
    pub(super) fn name(&self) -> String {
        let parameters = self.parameters.iter().map(|(name, value)| format!(" {name}={value}"));
        std::iter::once(self.harness.to_owned()).chain(parameters).collect()
    }
}

/// A proof of which nothing is hollow, with memories as they are, and an induction over one cycle.
const fn proof(
    harness: &'static str,
    parameters: &'static [(&'static str, u64)],
    shows: &'static str,
    reach: u32,
    mutants: &'static [Mutant],
) -> Proof {
    Proof { harness, parameters, hollow: &[], memories: Memories::Exact, shows, depth: 1, reach, mutants }
}

pub(super) const PROOFS: &[Proof] = &[
    proof("region_bounds", &[("Slots", 16)], REGION, 28, REGION_CHECK),
    Proof { depth: 0, ..proof("region_ends", &[], "the numbers of region_bounds mean the two ends", 1, &[]) },
    proof("fifo_order", &[("Width", 8), ("Bits", 2)], FIFO_ORDER, 12, FIFO),
    proof("fifo_order", &[("Width", 8), ("Bits", 7)], FIFO_OF_ROUTES, 8, FIFO),
    proof("fifo_order", &[("Width", 8), ("Bits", 9)], FIFO_LONGEST, 8, FIFO),
    proof("rewrite_packets", &[("Width", 128)], REWRITE, 10, LB_REWRITE),
    proof("rewrite_packets", &[("Width", 512)], REWRITE, 10, LB_REWRITE),
    Proof { memories: Memories::Any, ..proof("path_room", &[("Width", 128)], PATH, 14, LB_PATH) },
    Proof { memories: Memories::Any, ..proof("path_room", &[("Width", 512)], PATH, 14, LB_PATH) },
    proof("responder_window", &[("QueuePairs", 4), ("Slots", 4)], RESPONDER, 32, RESPONDER_CHECK),
    Proof { memories: Memories::Any, ..proof("swap_atomic", &[], SETS, 24, LB_SETS) },
    proof("strip_stream", &[("Width", 128)], STRIP, 6, ETH_STRIP),
    proof("strip_stream", &[("Width", 512)], STRIP, 6, ETH_STRIP),
    proof("parse_stream", &[("Width", 128)], PARSE, 6, LB_PARSE),
    proof("parse_stream", &[("Width", 512)], PARSE, 6, LB_PARSE),
    proof("add_stream", &[("Width", 128)], ADD, 6, ETH_ADD),
    proof("add_stream", &[("Width", 512)], ADD, 6, ETH_ADD),
    proof("answer_stream", &[("Width", 128)], ANSWER, 17, LB_ANSWERS),
    proof("answer_stream", &[("Width", 512)], ANSWER, 11, LB_ANSWERS),
    Proof { hollow: LB_TOP_MODULES, ..proof("top_stream", &[("Width", 128)], TOP, 6, LB_TOP) },
    Proof { hollow: LB_TOP_MODULES, ..proof("top_stream", &[("Width", 512)], TOP, 6, LB_TOP) },
    proof("icrc_stream", &[], "packets leave icrc512 by AXI4-Stream", 16, ICRC512),
];

const REGION: &str = "region_check permits exactly what lies in the region";

const FIFO_ORDER: &str = "the n-th entry that leaves is the n-th that came";

const FIFO_OF_ROUTES: &str = "the same with the size of lb_path's queue of routes";

const FIFO_LONGEST: &str = "the same with the size of the longest queue of lb_path";

const RESPONDER: &str = "which requests responder_check takes as new, as duplicates, as ahead";

const SETS: &str = "lb_sets changes the image between two packets, or not at all";

const PATH: &str = "no queue of lb_path overflows; packets are in one place, in one image";

const REWRITE: &str = "packets leave lb_rewrite once, in order, by AXI4-Stream";

const STRIP: &str = "packets leave eth_strip by AXI4-Stream";

const PARSE: &str = "each frame leaves lb_parse as one packet, of legal beats";

const ADD: &str = "each packet leaves eth_add as one frame, by AXI4-Stream";

const ANSWER: &str = "answers leave lb_answers by AXI4-Stream";

const TOP: &str = "frames and answers leave lb_top one by one, by AXI4-Stream";

const LB_TOP_MODULES: &[&str] = &["lb_sets", "eth_strip", "lb_path", "eth_add", "lb_answers"];

const REGION_CHECK: &[Mutant] = &[
    // One byte behind the region is permitted.
    Mutant { module: "region_check", from: "left5[31:0] >= length5", to: "left5[31:0] + 32'd1 >= length5" },
    Mutant { module: "region_check", from: "ok5 && !borrow5", to: "ok5" },
    Mutant { module: "region_check", from: "- 33'(borrow4)", to: "" },
    // A slot that was not cleared yet is read.
    Mutant { module: "region_check", from: "permits2 <= ready1 && ", to: "permits2 <= " },
];

const FIFO: &[Mutant] = &[
    // The entry at the output is overwritten.
    Mutant { module: "fifo", from: "count != '0 && (!out_valid || out_ready)", to: "count != '0" },
    // An entry is lost.
    Mutant { module: "fifo", from: "if (reads) head", to: "if (out_ready && count != '0) head" },
    // The last entry leaves twice.
    Mutant { module: "fifo", from: "reads || out_valid && !out_ready", to: "reads || out_valid" },
];

const LB_REWRITE: &[Mutant] = &[
    // A beat is overwritten while the output waits.
    Mutant {
        module: "lb_rewrite",
        from: "valid4 && runs && (!needs4 || valid3)",
        to: "valid4 && (!needs4 || valid3)",
    },
    // The bytes of the last beat leave twice.
    Mutant { module: "lb_rewrite", from: " && !(valid4 && needs4 && is_rest3);", to: ";" },
    // A packet is done in each cycle in which it waits.
    Mutant { module: "lb_rewrite", from: "valid3 && leaves3 && last3", to: "valid3 && last3" },
    // The first word behind the headers is not moved.
    Mutant { module: "lb_rewrite", from: "place4 + 6'(i) >= headers4", to: "place4 + 6'(i) > headers4" },
];

const LB_PATH: &[Mutant] = &[
    // A packet is done before it is counted, because its padding comes later.
    Mutant { module: "lb_path", from: "(comes && is_first)", to: "(comes && s_tlast)" },
    // A key that was looked up before a reset leaves a route behind.
    Mutant { module: "lb_lookup", from: "valid[Member] && !rst", to: "valid[Member]" },
    // A long packet has several keys.
    Mutant { module: "lb_parse", from: "takes && !is_full && (ends", to: "takes && (ends" },
    // Packets come although they are held.
    Mutant { module: "lb_path", from: "!(hold && is_first) && ", to: "" },
    // A packet is inside an empty path.
    Mutant { module: "lb_path", from: "packets == '0 && is_first", to: "packets[7:1] == '0 && is_first" },
    // A key is looked up in the image of an earlier key.
    Mutant { module: "lb_lookup", from: "{key, key_valid, image}", to: "{key, key_valid, images[1]}" },
    // A packet is counted for the image of the packet behind it.
    Mutant { module: "lb_rewrite", from: "image2 <= image1;", to: "image2 <= route_image;" },
];

const LB_SETS: &[Mutant] = &[
    // Packets come before the image changes.
    Mutant { module: "lb_sets", from: "{Empties, Settles, Checks}", to: "{Empties, Settles}" },
    // Packets may be inside.
    Mutant { module: "lb_sets", from: "if (is_empty) state <= Settles", to: "state <= Settles" },
    // The image in use is written.
    Mutant { module: "lb_sets", from: " && s_axil_wdata[14] != image;", to: ";" },
    // An entry is written during a swap.
    Mutant { module: "lb_sets", from: "write_at == Entry && !is_busy", to: "write_at == Entry" },
    // A swap begins within another.
    Mutant { module: "lb_sets", from: "{Swap, Take} && !is_busy", to: "{Swap, Take}" },
    // A swap that is refused changes the image.
    Mutant { module: "lb_sets", from: "if (reasons == '0) image", to: "image" },
    // A tick at the guard is no reason.
    Mutant { module: "lb_sets", from: "newest[lb] >= {", to: "newest[lb] > {" },
    // A load balancer without guard is a reason.
    Mutant { module: "lb_sets", from: "guarded[lb] && has_newest[lb]", to: "has_newest[lb]" },
];

const RESPONDER_CHECK: &[Mutant] = &[
    // PSNs are compared without their wrap.
    Mutant {
        module: "responder_check",
        from: "ahead2 <= packet1.psn - state1.psn;",
        to: "ahead2 <= {packet1.psn < state1.psn, 23'(packet1.psn - state1.psn)};",
    },
    // What is furthest ahead is a duplicate.
    Mutant {
        module: "responder_check",
        from: "ahead3 <= is_after(ahead2)",
        to: "ahead3 <= is_after(ahead2 + 24'd1)",
    },
    // A packet does not wait for the packet just before it, or not until that one has written the state.
    Mutant {
        module: "responder_check",
        from: "same[0] <= front[Front].valid && front[Front].qp == front[Front-1].qp;",
        to: "same[0] <= 1'b0;",
    },
    Mutant {
        module: "responder_check",
        from: "same[4] <= packet3.valid && packet3.qp == front[Front-1].qp;",
        to: "same[4] <= 1'b0;",
    },
    // A packet that waits goes on, too.
    Mutant { module: "responder_check", from: "front[Front].valid && !waits;", to: "front[Front].valid;" },
    // A setup is lost because a state is written in the same cycle.
    Mutant {
        module: "responder_check",
        from: "setup_ready = is_cleared && !writes",
        to: "setup_ready = is_cleared",
    },
    // A READ takes one PSN, or one too many.
    Mutant {
        module: "responder_check",
        from: "state3.psn + (packet3.opcode.operation == Read ? count3 : 24'd1)",
        to: "state3.psn + 24'd1",
    },
    Mutant { module: "responder_check", from: "33'(mtu2) - 33'd1", to: "33'(mtu2)" },
    // A request that is refused is counted.
    Mutant { module: "responder_check", from: "in_order4 && verdict4 == Passes", to: "in_order4" },
    // A duplicate may be new.
    Mutant {
        module: "responder_check",
        from: "in_order3 <= ahead2 == '0;",
        to: "in_order3 <= ahead2[22:0] == '0;",
    },
];

const ETH_STRIP: &[Mutant] = &[
    // A beat is overwritten while the output waits.
    Mutant { module: "eth_strip", from: "if (runs) begin", to: "if (runs || s_tvalid) begin" },
    // A beat without bytes leaves when the frame ends with the header's 14 bytes in the last beat.
    Mutant {
        module: "eth_strip",
        from: "s_tlast && !s_tkeep[HeaderBytes]",
        to: "s_tlast && !s_tkeep[HeaderBytes-1]",
    },
    // A frame without a packet leaves as a beat without bytes.
    Mutant { module: "eth_strip", from: " && s_tkeep[HeaderBytes];", to: ";" },
    // The bytes of the next frame come behind those of the last beat.
    Mutant { module: "eth_strip", from: "needs1 ? s_tkeep : {Bytes{1'b0}}", to: "s_tkeep" },
];

const LB_PARSE: &[Mutant] = &[
    // Beats without bytes leave if a packet has no valid length.
    Mutant { module: "lb_parse", from: "length == '0 || length > 16'(i)", to: "length > 16'(i)" },
    // The beat in which the packet ends is not the last one.
    Mutant { module: "lb_parse", from: "m_tlast <= ends", to: "m_tlast <= s_tlast" },
    // Padding leaves as a packet of its own.
    Mutant { module: "lb_parse", from: "(skips || ends)", to: "ends" },
];

const ETH_ADD: &[Mutant] = &[
    // A beat is overwritten while the output waits.
    Mutant { module: "eth_add", from: "if (runs) begin", to: "if (runs || s_tvalid) begin" },
    // A beat without bytes leaves.
    Mutant { module: "eth_add", from: "s_tkeep[Bytes-HeaderBytes];", to: "s_tkeep[Bytes-HeaderBytes-1];" },
    // A beat is lost while the rest of the packet before it leaves.
    Mutant { module: "eth_add", from: "runs && !has_rest", to: "runs" },
];

const LB_ANSWERS: &[Mutant] = &[
    // A frame overwrites the request that is answered.
    Mutant { module: "lb_answers", from: " && !(is_done && request != None)", to: "" },
    // The output does not wait.
    Mutant { module: "lb_answers", from: "if (m_tready) begin", to: "if (m_tready || s_tvalid) begin" },
    // Beats that are not the last one have the bytes of the last one.
    Mutant { module: "lb_answers", from: "m_tlast ? out_keep : '1", to: "out_keep" },
];

const LB_TOP: &[Mutant] = &[
    // An answer begins within a frame.
    Mutant { module: "lb_top", from: "is_first ? answer_valid : is_answer", to: "answer_valid" },
    // A beat is overwritten while the output waits.
    Mutant { module: "lb_top", from: "m_tready || !m_tvalid", to: "m_tready || !m_tvalid || answer_valid" },
    // A beat of a frame is lost while an answer leaves.
    Mutant { module: "lb_top", from: "runs && !answers_now", to: "runs" },
    // A beat of an answer has the bytes of a frame's.
    Mutant { module: "lb_top", from: "answers_now ? answer_keep : frame_keep", to: "frame_keep" },
];

const ICRC512: &[Mutant] = &[
    // A beat is overwritten while the output waits.
    Mutant { module: "icrc512", from: "m_tready || !m_tvalid", to: "m_tready || !m_tvalid || s_tvalid" },
    // A beat leaves with the bytes of the next one.
    Mutant {
        module: "icrc512",
        from: "delay[4'(written-4'(Stages))]",
        to: "delay[4'(written-4'(Stages-1))]",
    },
    // A beat is the last one because the next one is.
    Mutant { module: "icrc512", from: "m_tlast <= beat[Stages].last", to: "m_tlast <= beat[Stages-1].last" },
];
