// Answers requests to the addresses of the load balancers: ARP, neighbour solicitations of IPv6, and echo requests of both.
//
//   frame ─► memory, window of its first 128 bytes ─► is it a request? ─► is the address ours? (3) ─► changed window, memory ─► frame
//
// s_*: all frames that come; s_tvalid is high only when a beat is taken. There is no back-pressure. Frames that come while a request is being
//   answered are ignored, so that requests never slow the load balancer down; a host asks again.
// m_*: answers, with valid and ready. Half of the cycles carry a beat.
// write, image: those of lb_lookup, of which only the destinations are kept here.
//
// Requests are answered if they are whole, at most 2048 bytes long, to own_mac or, for ARP and solicitations, to a group of MAC addresses. Those with
// IPv4 options or fragments, and solicitations without a source address, are not. Checksums are changed by what changes, so that a wrong one stays
// wrong.
//
// Sources: RFC 826, 792, 1624, 4443, 4861.
module lb_answers
  import lb_pkg::*;
  import lb_tables_pkg::*;
  import eth_pkg::*;
#(
    parameter int Width = 512,
    localparam int Bytes = Width / 8
) (
    input logic clk,
    input logic rst,
    input logic [47:0] own_mac,
    input write_t write,
    input logic image,
    input logic [Width-1:0] s_tdata,
    input logic [Bytes-1:0] s_tkeep,
    input logic s_tlast,
    input logic s_tuser,
    input logic s_tvalid,
    output logic [Width-1:0] m_tdata,
    output logic [Bytes-1:0] m_tkeep,
    output logic m_tlast,
    output logic m_tvalid,
    input logic m_tready
);

  localparam int WindowBytes = 128;
  localparam int WindowBeats = WindowBytes / Bytes;
  localparam int AtBits = $clog2(2048 / Bytes);
  typedef logic [WindowBytes-1:0][7:0] window_t;

  typedef enum logic [2:0] {
    None,
    Arp,
    EchoV4,
    EchoV6,
    Solicitation
  } request_e;

  typedef enum logic [1:0] {
    Receives,
    Looks,
    Reads,
    Sends
  } state_e;

  state_e state;
  window_t window;

  // ------------------------------------------------------------------ the frame

  logic [Width-1:0] beats[1<<AtBits];
  logic [AtBits-1:0] at, last_at;
  logic [Bytes-1:0] last_keep;
  logic [11:0] length, length_now;
  logic is_first, takes, is_taken, is_long, is_done;
  request_e request;
  assign takes = s_tvalid && (is_first ? state == Receives && !(is_done && request != None) : is_taken);
  always_comb begin
    length_now = is_first ? '0 : length;
    for (int i = 0; i < Bytes; i++) length_now += 12'(s_tkeep[i]);
  end

  logic [AtBits-1:0] place;
  assign place = is_first ? '0 : at;
  always_ff @(posedge clk) begin
    is_done <= takes && s_tlast && !s_tuser && !(is_long && !is_first);
    if (s_tvalid) is_first <= s_tlast;
    if (s_tvalid && is_first) is_taken <= takes;
    if (takes) begin
      if (is_first || !is_long) beats[place] <= s_tdata;
      at <= place + 1'b1;
      is_long <= is_first ? 1'b0 : is_long || at == '1;
      length <= length_now;
      last_at <= place;
      last_keep <= s_tkeep;
    end
    if (rst) begin
      is_first <= 1'b1;
      {is_done, is_taken} <= '0;
    end
  end

  // ------------------------------------------------------------------ what it asks

  function automatic logic [15:0] word(window_t bytes, int from);
    return {bytes[from], bytes[from+1]};
  endfunction

  function automatic logic [47:0] mac(window_t bytes, int from);
    return {word(bytes, from), word(bytes, from + 2), word(bytes, from + 4)};
  endfunction

  function automatic logic [31:0] v4(window_t bytes, int from);
    return {word(bytes, from), word(bytes, from + 2)};
  endfunction

  function automatic logic [127:0] v6(window_t bytes, int from);
    return {v4(bytes, from), v4(bytes, from + 4), v4(bytes, from + 8), v4(bytes, from + 12)};
  endfunction

  logic is_to_us, is_to_group;
  logic [15:0] v4_length, v6_length;
  assign is_to_us = mac(window, 0) == own_mac;
  assign is_to_group = window[0][0];
  assign v4_length = word(window, 16);
  assign v6_length = word(window, 18);
  always_comb begin
    request = None;
    case (word(
        window, 12
    ))
      TypeArp:
      if ((is_to_us || is_to_group) && length >= 12'd42 && v4(window, 14) == 32'h0001_0800 && v4(window, 18) == 32'h0604_0001)
        request = Arp;
      TypeV4:
      if (is_to_us && window[14] == 8'h45 && (word(
              window, 20
          ) & 16'h3fff) == '0 && window[23] == 8'd1 && v4_length >= 16'd28 && 17'(v4_length) + 17'd14 <= 17'(length) && word(
              window, 34
          ) == 16'h0800)
        request = EchoV4;
      TypeV6:
      if (window[14][7:4] == 4'd6 && window[20] == 8'd58 && 17'(v6_length) + 17'd54 <= 17'(length)) begin
        if (is_to_us && v6_length >= 16'd8 && word(window, 54) == 16'h8000) request = EchoV6;
        if ((is_to_us || is_to_group) && v6_length >= 16'd24 && word(
                window, 54
            ) == 16'h8700 && window[21] == 8'd255 && v6(
                window, 22
            ) != '0)
          request = Solicitation;
      end
      default: request = None;
    endcase
  end

  // ------------------------------------------------------------------ whether the address is ours

  request_e asked;
  logic [127:0] address;
  logic is_ours, is_v6;
  assign is_v6 = asked inside {EchoV6, Solicitation};
  always_comb begin
    case (asked)
      Arp: address = 128'(v4(window, 38));
      EchoV4: address = 128'(v4(window, 30));
      EchoV6: address = v6(window, 38);
      default: address = v6(window, 62);
    endcase
  end

  logic [4:0] unused_value;
  lb_addresses #(
      .RowBits(5)
  ) destinations (
      .clk(clk),
      .write(write.which == Destinations),
      .write_image(write.image),
      .write_way(write.index[9:8]),
      .write_row(write.index[4:0]),
      .write_entry(address_t'(write.data[$bits(address_t)-1:0])),
      .image(image),
      .key({3'd0, is_v6, address}),
      .hit(is_ours),
      .value(unused_value)
  );

  // ------------------------------------------------------------------ the answer

  function automatic window_t put(window_t bytes, int from, int count, logic [127:0] value);
    window_t result;
    result = bytes;
    for (int i = 0; i < 16; i++) if (i < count) result[from+i] = value[8*(count-1-i)+:8];
    return result;
  endfunction

  // The lengths of an advertisement: of its ICMP message, and of its frame.
  localparam int AdvertisementBytes = 32;
  localparam int AdvertisementFrame = HeaderBytes + 40 + AdvertisementBytes;
  localparam logic [7:0] Hops = 8'd64;

  // The sums of a solicitation's target and source and of own_mac, and the checksum of the advertisement. It covers the addresses, the length, the
  // protocol, the type, the flags, the target and the option.
  logic [15:0] target_sum, source_sum, mac_sum, checksum;
  always_ff @(posedge clk) begin
    target_sum <= fold(sum8(v6(window, 62)));
    source_sum <= fold(sum8(v6(window, 22)));
    mac_sum <= fold(sum8(128'(own_mac)));
    checksum <= ~fold(
        20'(target_sum) + 20'(target_sum) + 20'(source_sum) + 20'(mac_sum)
            + 20'(AdvertisementBytes) + 20'd58 + 20'h8800 + 20'h6000 + 20'h0201
    );
  end

  window_t answer;
  always_comb begin
    answer = put(window, 0, 6, 128'(mac(window, 6)));
    answer = put(answer, 6, 6, 128'(own_mac));
    case (asked)
      Arp: begin
        answer = put(answer, 20, 2, 128'd2);
        answer = put(answer, 22, 10, 128'({own_mac, v4(window, 38)}));
        answer = put(answer, 32, 10, 128'({mac(window, 22), v4(window, 28)}));
      end
      EchoV4: begin
        answer = put(answer, 22, 1, 128'(Hops));
        answer = put(answer, 24, 2, 128'(follow(word(window, 24), fold({4'd0, ~window[22], 8'hff} + {4'd0, Hops, 8'd0}))));
        answer = put(answer, 26, 4, 128'(v4(window, 30)));
        answer = put(answer, 30, 4, 128'(v4(window, 26)));
        answer = put(answer, 34, 2, 128'd0);
        answer = put(answer, 36, 2, 128'(follow(word(window, 36), 16'hf7ff)));
      end
      EchoV6: begin
        answer = put(answer, 21, 1, 128'(Hops));
        answer = put(answer, 22, 16, v6(window, 38));
        answer = put(answer, 38, 16, v6(window, 22));
        answer = put(answer, 54, 2, 128'h8100);
        answer = put(answer, 56, 2, 128'(follow(word(window, 56), 16'h0100)));
      end
      default: begin
        answer = put(answer, 18, 2, 128'(AdvertisementBytes));
        answer = put(answer, 22, 16, v6(window, 62));
        answer = put(answer, 38, 16, v6(window, 22));
        answer = put(answer, 54, 4, 128'({16'h8800, checksum}));
        answer = put(answer, 58, 4, 128'h6000_0000);
        answer = put(answer, 78, 8, 128'({16'h0201, own_mac}));
      end
    endcase
  end

  // ------------------------------------------------------------------ the output

  logic [AtBits-1:0] out_at, out_last;
  logic [Bytes-1:0] out_keep;
  logic [2:0] waits;
  logic [Width-1:0] stored;
  always_ff @(posedge clk) stored <= beats[out_at];
  always_ff @(posedge clk) begin
    case (state)
      Receives: begin
        waits <= '0;
        asked <= request;
        if (is_done && request != None) state <= Looks;
      end
      Looks: begin
        waits <= waits + 1'b1;
        out_at <= '0;
        out_last <= asked == Solicitation ? AtBits'((AdvertisementFrame - 1) / Bytes) : last_at;
        out_keep <= asked == Solicitation ? Bytes'((1 << ((AdvertisementFrame - 1) % Bytes + 1)) - 1) : last_keep;
        if (waits == 3'd4) begin
          window <= answer;
          state <= is_ours ? Reads : Receives;
        end
      end
      Reads: state <= Sends;
      Sends:
      if (m_tready) begin
        out_at <= out_at + 1'b1;
        state <= m_tlast ? Receives : Reads;
      end
    endcase
    if (takes && (is_first || at < AtBits'(WindowBeats))) begin
      for (int i = 0; i < WindowBeats; i++) if (place == AtBits'(i)) window[i*Bytes+:Bytes] <= s_tdata;
    end
    if (rst) state <= Receives;
  end

  always_comb begin
    m_tdata = stored;
    for (int i = 0; i < WindowBeats; i++) if (out_at == AtBits'(i)) m_tdata = window[i*Bytes+:Bytes];
    m_tlast = out_at == out_last;
    m_tkeep = m_tlast ? out_keep : '1;
    m_tvalid = state == Sends;
  end

endmodule
