// The middleware for C++, with NAA_SPEC of 102 (sum) with 2 inputs and 101 (fail) with 1.
#include <naaice_ap2_cpp.h>

#include "naaice_check.h"

int main() {
  {
    NAAHandler<unsigned char> sum(102);
    std::vector<unsigned char> a(1000, 1), b(10, 2);
    std::future<std::vector<unsigned char>> first = sum.invoke(3, a, b);
    a[0] = 2;
    std::future<std::vector<unsigned char>> second = sum.invoke(3, a, b);
    CHECK(first.get() == std::vector<unsigned char>(3, (1000 + 20) % 256));
    CHECK(second.get() == std::vector<unsigned char>(3, (1001 + 20) % 256));
    b.push_back(5);
    CHECK(sum.invoke(1, a, b).get()[0] == (1001 + 25) % 256);
    try {
      sum.invoke(1, a);
      CHECK(false);
    } catch (const std::runtime_error &error) {
      CHECK(std::string(error.what()).find("with 1 inputs") != std::string::npos);
    }
    CHECK(sum.invoke(1, a, b).get()[0] == (1001 + 25) % 256);
    // Left alone while it runs.
    sum.invoke(1, a, b);
  }
  NAAHandler<double> none(101);
  CHECK(none.invoke(2, std::vector<double>{1.5}).get() == std::vector<double>(2));
  std::puts("ok");
  return 0;
}
