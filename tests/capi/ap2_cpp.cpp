// naaice_ap2_cpp.h: every public method, and what it throws.
#include <naaice_ap2_cpp.h>

#include "check.h"

namespace {

void spec(unsigned function, unsigned inputs) {
  const std::string entry = std::string(server_ip()) + ":" + std::to_string(server_port()) + ":" +
                            std::to_string(function) + ":" + std::to_string(inputs);
  setenv("NAA_SPEC", entry.c_str(), 1);
  setenv("NAA_LOCAL_IP", local_ip(), 1);
}

// What the call throws.
template <typename Call>
std::string thrown(Call call) {
  try {
    call();
  } catch (const std::runtime_error &error) {
    return error.what();
  }
  return "nothing";
}

bool has(const std::string &text, const char *words) {
  if (text.find(words) == std::string::npos) {
    std::printf("\"%s\" is not in \"%s\"\n", words, text.c_str());
    return false;
  }
  return true;
}

// Nothing is connected before the first call.
void constructors() {
  unsetenv("NAA_SPEC");
  for (unsigned code : {0u, 1u, 127u, 128u, 1u << 31}) {
    NAAHandler<float> unused(code);
  }
}

void destructors() {
  spec(SUM, 1);
  for (int times = 0; times < 5; times++) {
    NAAHandler<unsigned char> handler(SUM);
    const std::vector<unsigned char> input(100, 1);
    // Its only entry is free again each time; the future outlives nothing.
    if (times % 2 == 0) {
      CHECK(handler.invoke(10, input).get() == std::vector<unsigned char>(10, 100));
    } else {
      handler.invoke(10, input);
    }
  }
}

void invokes() {
  spec(SUM, 2);
  NAAHandler<unsigned char> handler(SUM);
  std::vector<unsigned char> a(1000, 1), b(10, 2);
  auto first = handler.invoke(3, a, b);
  a.assign(1000, 77);
  CHECK(first.get() == std::vector<unsigned char>(3, (1000 + 20) % 256));
  for (int size : {0, 1, 5000, 5000, 3}) {
    a.assign(static_cast<std::size_t>(size), 3);
    CHECK(handler.invoke(7, a, b).get() == std::vector<unsigned char>(7, static_cast<unsigned char>(3 * size + 20)));
  }
  auto second = handler.invoke(1, a, b), third = handler.invoke(1, b, a);
  CHECK(third.get() == second.get());
}

void other_types() {
  spec(FAIL, 1);
  NAAHandler<double> handler(FAIL);
  CHECK(handler.invoke(2, std::vector<double>{1.5}).get() == std::vector<double>(2));
}

void refusals() {
  spec(SUM, 2);
  NAAHandler<unsigned char> handler(SUM);
  const std::vector<unsigned char> one(1, 1);
  CHECK(has(thrown([&] { handler.invoke(1, one); }), "with 1 inputs"));
  CHECK(handler.invoke(1, one, one).get()[0] == 2);
  CHECK(has(thrown([&] { handler.invoke(1, one, one, one); }), "with 3 inputs"));
  unsetenv("NAA_SPEC");
  CHECK(has(thrown([&] { handler.invoke(2, one, one); }), "NAA_SPEC is not set"));
  spec(SUM, 2);
  CHECK(handler.invoke(1, one, one).get()[0] == 2);
  NAAHandler<unsigned char> second(SUM), nonsense(128);
  CHECK(has(thrown([&] { second.invoke(1, one, one); }), "in use"));
  CHECK(has(thrown([&] { nonsense.invoke(1, one, one); }), "1 to 127"));
}

void unknown() {
  spec(99, 1);
  NAAHandler<unsigned char> handler(99);
  const std::vector<unsigned char> one(1, 1);
  for (int times = 0; times < 3; times++) {
    auto future = handler.invoke(1, one);
    CHECK(has(thrown([&] { future.get(); }), "return code 0x10"));
  }
}

const row rows[] = {
    {"NAAHandler", "use", constructors, 10, false},
    {"~NAAHandler", "use", destructors, 10, false},
    {"invoke", "use", invokes, 10, false},
    {"invoke", "use, of doubles", other_types, 10, false},
    {"invoke", "arguments", refusals, 10, false},
    {"invoke", "errors, an unknown function", unknown, 10, false},
};

} // namespace

MAIN(rows)
