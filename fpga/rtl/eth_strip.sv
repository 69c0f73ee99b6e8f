// Takes the Ethernet header off frames that carry IP packets to this station.
//
// s_*: frames from the destination address on, without preamble and check sequence. Back-pressure: s_tready falls when m_tready is low.
// m_*: IP packets, 1 cycle later or more. tuser is passed on.
//
// Frames to other stations are dropped, and so are frames of ARP. A frame to own_mac that carries neither IPv4 nor IPv6, or whose type is not that of
// its packet, becomes one beat without a valid IP header and with tuser, so that it is counted.
module eth_strip
  import eth_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input logic [47:0] own_mac,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    output logic s_tready,
    output logic [Width-1:0] m_tdata,
    output logic [Bytes-1:0] m_tkeep,
    output logic m_tlast,
    output logic m_tuser,
    output logic m_tvalid,
    input logic m_tready
);

  // ------------------------------------------------------------------ the header

  logic is_first, is_ours, is_alien, skips, takes;
  logic [15:0] ether;
  logic [3:0] version;
  assign ether = {s_tdata[8*12+:8], s_tdata[8*13+:8]};
  assign version = s_tdata[8*14+4+:4];
  // A frame of at most 14 bytes carries nothing.
  assign is_ours = mac_at(s_tdata[47:0]) == own_mac && ether != TypeArp && s_tkeep[HeaderBytes];
  assign is_alien = !(ether == TypeV4 && version == 4'd4 || ether == TypeV6 && version == 4'd6);
  assign takes = s_tvalid && s_tready;
  always_ff @(posedge clk) begin
    if (takes) begin
      is_first <= s_tlast;
      // High behind the first beat of a frame of which nothing more leaves.
      skips <= !s_tlast && (is_first ? !is_ours || is_alien : skips);
    end
    if (rst) begin
      is_first <= 1'b1;
      skips <= 1'b0;
    end
  end

  // ------------------------------------------------------------------ the packet

  // The beat before the one at the input. It waits for the first 14 bytes of the next beat.
  logic valid1, last1, user1, alien1, leaves1, needs1, is_rest, runs;
  logic [Width-1:0] data1;
  logic [Bytes-1:0] keep1;
  logic goes_in;
  assign goes_in = s_tvalid && (is_first ? is_ours : !skips);
  assign runs = m_tready || !m_tvalid;
  assign needs1 = !last1;
  // The next beat is the last one, and all of its bytes move into this one.
  assign is_rest = s_tlast && !s_tkeep[HeaderBytes];
  assign leaves1 = valid1 && runs && (!needs1 || s_tvalid);
  assign s_tready = !valid1 || leaves1;

  always_ff @(posedge clk) begin
    if (s_tready) begin
      valid1 <= goes_in && !(valid1 && needs1 && is_rest);
      data1 <= s_tdata;
      keep1 <= s_tkeep;
      alien1 <= is_first && is_alien;
      last1 <= s_tlast || is_first && is_alien;
      user1 <= s_tuser || is_first && is_alien;
    end
    if (runs) begin
      m_tvalid <= leaves1;
      m_tdata <= Width'({s_tdata, data1} >> (8 * HeaderBytes));
      // No IP version has the number 0.
      if (alien1) m_tdata[7:4] <= 4'd0;
      m_tkeep <= Bytes'({needs1 ? s_tkeep : {Bytes{1'b0}}, keep1} >> HeaderBytes);
      m_tlast <= last1 || needs1 && is_rest;
      m_tuser <= last1 ? user1 : needs1 && is_rest && s_tuser;
    end
    if (rst) {valid1, m_tvalid} <= '0;
  end

endmodule
