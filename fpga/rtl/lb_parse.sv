// Reads the headers of IP packets. It finds the key that lb_lookup needs, and the fields and sums that lb_rewrite needs.
//
//   beat -> cut to the IP packet's length -> 96 bytes of headers -> UDP and LB header where the IP header ends -> checks, sums
//
// s_*: packets that begin at the IP header, Width bits per cycle, with contiguous tkeep. Padding may follow the IP packet. There is no
//   back-pressure: the module that reads m_* must have room for every packet.
// m_*: the same packets without padding, 1 cycle later. tuser of the last beat is high if the packet is shorter than its IP header says, or if
//   s_tuser was high.
// key_*, head: they come once for each packet, 4 cycles after its 96th byte, or after its last byte if it is shorter. If the packet has ended
//   by then and is too short, the cause is NotIp. If a longer packet is too short, only m_tuser says so.
//
// The module does the same as the Rust module ejfat::lb::packet and the decoder of LB headers. It reads IPv4 with options, and IPv6 if UDP
// follows the IPv6 header at once.
module lb_parse
  import lb_pkg::*;
#(
    parameter int Width = 512,
    // Whether requests of ICMP have the cause Answered. Else they have the cause NoUdplbHdr.
    parameter bit Answers = 0,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    output logic [Width-1:0] m_tdata,
    output logic [Bytes-1:0] m_tkeep,
    output logic m_tlast,
    output logic m_tuser,
    output logic m_tvalid,
    output logic key_valid,
    output key_t key,
    output head_t head
);

  localparam int HeadBytes = 96;
  localparam int Beats = HeadBytes / Bytes + (HeadBytes % Bytes != 0 ? 1 : 0);
  localparam int BeatBits = $clog2(Beats + 1);

  // ------------------------------------------------------------------ 0: the length

  // The bytes of the packet from this beat on; 0 if the packet has no valid length.
  logic first;
  logic [15:0] left, total, length;
  logic is_v4, is_v6;
  assign is_v4 = s_tdata[7:4] == 4'd4;
  assign is_v6 = s_tdata[7:4] == 4'd6;
  always_comb begin
    total = '0;
    if (is_v4) total = {s_tdata[23:16], s_tdata[31:24]};
    // The sum may need more than 16 bits. No frame is that long, so that any length above all frames does as well.
    if (is_v6) total = {s_tdata[39:32], s_tdata[47:40]} > 16'hffd7 ? 16'hffff : {s_tdata[39:32], s_tdata[47:40]} + 16'd40;
    length = first ? total : left;
  end

  localparam int CountBits = $clog2(Bytes + 1);
  logic [CountBits-1:0] bytes;
  always_comb begin
    bytes = '0;
    for (int i = 0; i < Bytes; i++) bytes += CountBits'(s_tkeep[i]);
  end

  // Whether the packet ends in this beat. A packet without a valid length ends with its frame.
  logic ends, skips, is_whole;
  assign ends = s_tlast || length != '0 && length <= 16'(Bytes);
  assign is_whole = length != '0 && length <= 16'(bytes);

  always_ff @(posedge clk) begin
    if (s_tvalid) begin
      first <= s_tlast;
      // Beats behind the packet are padding, and are left out.
      skips <= !s_tlast && (skips || ends);
      left <= length == '0 ? '0 : length - 16'(Bytes);
    end
    if (rst) begin
      first <= 1'b1;
      skips <= 1'b0;
    end
  end

  // ------------------------------------------------------------------ 1: the packet without padding

  logic takes;
  assign takes = s_tvalid && !skips;
  always_ff @(posedge clk) begin
    m_tdata <= s_tdata;
    for (int i = 0; i < Bytes; i++) m_tkeep[i] <= s_tkeep[i] && (length == '0 || length > 16'(i));
    m_tlast <= ends;
    m_tuser <= ends && (!is_whole || s_tuser && s_tlast);
    m_tvalid <= takes && !rst;
  end

  // ------------------------------------------------------------------ 1: the headers, beat by beat

  logic [Beats-1:0][Width-1:0] beats1;
  logic [BeatBits-1:0] at;
  logic is_done, done1, short1, v4_1, v6_1;
  logic [15:0] length1, first_length;
  // All beats of the window came for this packet; further beats are not kept.
  logic is_full;
  assign is_done = takes && !is_full && (ends || at == BeatBits'(Beats - 1));
  always_ff @(posedge clk) begin
    if (takes) begin
      for (int i = 0; i < Beats; i++) if (!is_full && at == BeatBits'(i)) beats1[i] <= s_tdata;
      at <= ends ? '0 : at + BeatBits'(!is_full);
      is_full <= !ends && (is_full || at == BeatBits'(Beats - 1));
      if (first) first_length <= total;
    end
    done1 <= is_done && !rst;
    short1 <= ends && !is_whole;
    length1 <= first ? total : first_length;
    if (rst) begin
      at <= '0;
      is_full <= 1'b0;
    end
  end

  // The headers as words of 32 bits in network order: the first byte is the highest.
  logic [HeadBytes/4-1:0][31:0] words1;
  always_comb begin
    for (int i = 0; i < HeadBytes / 4; i++) begin
      logic [31:0] word;
      word = beats1[i*32/Width][i*32%Width+:32];
      words1[i] = {word[7:0], word[15:8], word[23:16], word[31:24]};
    end
    v4_1 = words1[0][31:28] == 4'd4;
    v6_1 = words1[0][31:28] == 4'd6;
  end

  // ------------------------------------------------------------------ 2: where the IP header ends

  logic done2, is_ip2, v6_2, is_udp2, is_icmp2, expired2;
  logic [3:0] udp2;
  logic [15:0] length2, data2;
  logic [127:0] source2, destination2;
  logic [5:0][31:0] words2;
  logic [3:0] udp1;
  assign udp1 = v6_1 ? 4'd10 : words1[0][27:24];
  always_ff @(posedge clk) begin
    done2 <= done1 && !rst;
    v6_2 <= v6_1;
    is_ip2 <= !short1 && (v6_1 || v4_1 && words1[0][27:24] >= 4'd5 && length1 >= 16'({words1[0][27:24], 2'b0}));
    is_udp2 <= v6_1 ? words1[1][15:8] == 8'd17 : words1[2][23:16] == 8'd17 && words1[1][13:0] == '0;
    is_icmp2 <= Answers && (v6_1 ? words1[1][15:8] == 8'd58 : words1[2][23:16] == 8'd1 && words1[1][13:0] == '0);
    expired2 <= (v6_1 ? words1[1][7:1] : words1[2][31:25]) == '0;
    udp2 <= udp1;
    length2 <= length1;
    data2 <= length1 - 16'({udp1, 2'b0});
    source2 <= v6_1 ? {words1[2], words1[3], words1[4], words1[5]} : 128'(words1[3]);
    destination2 <= v6_1 ? {words1[6], words1[7], words1[8], words1[9]} : 128'(words1[4]);
    for (int i = 0; i < 6; i++) words2[i] <= words1[5'(udp1)+5'(i)];
  end

  // ------------------------------------------------------------------ 3: checks and sums

  logic done3, is_ip3, has_header3, is_request3, v6_3, expired3;
  logic [7:0] version3;
  logic [3:0] udp3;
  logic [15:0] length3, upper3, lower3;
  logic [63:0] tick3;
  logic [127:0] source3, destination3;
  logic [15:0] port3;
  logic [19:0] gone3, header3;
  always_ff @(posedge clk) begin
    {done3, is_ip3, v6_3, expired3, udp3, length3} <= {done2 && !rst, is_ip2, v6_2, expired2, udp2, length2};
    {source3, destination3} <= {source2, destination2};
    // The UDP port is one of data, the UDP length is that of the packet, and an LB header follows and has its magic number.
    has_header3 <= is_udp2 && words2[0][15:14] == 2'b01 && words2[1][31:16] == data2 && data2 >= 16'd24
        && words2[2][31:16] == 16'h4c42;
    // An echo request of IPv4 or IPv6, or a neighbour solicitation.
    is_request3 <= is_icmp2 && data2 >= 16'd8 && (v6_2 ? words2[0][31:16] inside {16'h8000, 16'h8700} : words2[0][31:16] == 16'h0800);
    version3 <= words2[2][15:8];
    {upper3, lower3} <= words2[3];
    tick3 <= {words2[4], words2[5]};
    gone3 <= sum8(~source2);
    port3 <= ~words2[0][15:0];
    header3 <= sum8(~{words2[2], words2[3], words2[4], words2[5]});
  end

  // ------------------------------------------------------------------ 4: the key

  always_ff @(posedge clk) begin
    key_valid <= done3 && !rst;
    key.is_v6 <= v6_3;
    key.source <= source3;
    key.destination <= destination3;
    key.is_expired <= expired3;
    key.is_v3 <= version3 == 8'd3;
    key.tick <= tick3;
    key.slot_select <= version3 == 8'd3 ? upper3 : tick3[15:0];
    key.port_select <= lower3;
    if (!is_ip3) key.cause <= NotIp;
    else if (is_request3) key.cause <= Answered;
    else if (!has_header3) key.cause <= NoUdplbHdr;
    else if (version3 != 8'd2 && version3 != 8'd3) key.cause <= BadUdplbVersion;
    else key.cause <= Pass;

    head.is_v6 <= v6_3;
    head.udp <= udp3;
    head.destination <= destination3;
    head.source <= fold(gone3);
    head.port <= port3;
    head.header <= fold(header3);
    head.length <= length3;
  end

endmodule
