// Puts an Ethernet header in front of IP packets.
//
// s_*: IP packets; s_mac is the MAC address they go to, with their first beat. If it is 0, they go to hop_mac. Back-pressure: s_tready falls when
//   m_tready is low, and for one cycle after a packet whose last bytes need a beat of their own.
// m_*: frames, 1 cycle later. tuser is passed on. Frames may be shorter than 60 bytes: the MAC pads them.
module eth_add
  import eth_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input logic [47:0] own_mac,
    input logic [47:0] hop_mac,
    input logic [47:0] s_mac,
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

  // The bytes of a beat that the next beat of the frame begins with.
  localparam int Carried = 8 * HeaderBytes;
  logic [Carried-1:0] header, carry;
  logic [15:0] ether;
  assign ether = s_tdata[7:4] == 4'd6 ? TypeV6 : TypeV4;
  assign header = {ether[7:0], ether[15:8], mac_at(own_mac), mac_at(s_mac == '0 ? hop_mac : s_mac)};

  logic is_first, runs, takes, has_rest, needs_rest, rest_user;
  logic [HeaderBytes-1:0] rest_keep;
  assign runs = m_tready || !m_tvalid;
  assign s_tready = runs && !has_rest;
  assign takes = s_tvalid && s_tready;
  assign needs_rest = s_tlast && s_tkeep[Bytes-HeaderBytes];
  always_ff @(posedge clk) begin
    if (takes) begin
      is_first <= s_tlast;
      carry <= s_tdata[Width-1-:Carried];
      rest_keep <= s_tkeep[Bytes-1-:HeaderBytes];
      rest_user <= s_tuser;
    end
    if (runs) begin
      has_rest <= takes && needs_rest;
      m_tvalid <= takes || has_rest;
      m_tdata <= has_rest ? Width'(carry) : {s_tdata[Width-Carried-1:0], is_first ? header : carry};
      m_tkeep <= has_rest ? Bytes'(rest_keep) : {s_tkeep[Bytes-HeaderBytes-1:0], {HeaderBytes{1'b1}}};
      m_tlast <= has_rest || s_tlast && !needs_rest;
      m_tuser <= has_rest ? rest_user : s_tlast && !needs_rest && s_tuser;
    end
    if (rst) begin
      is_first <= 1'b1;
      {has_rest, m_tvalid} <= '0;
    end
  end

endmodule
