/* The middleware for C++17: calls on vectors, with futures.
 *
 *   NAAHandler<float> scale(7);
 *   std::future<std::vector<float>> result = scale.invoke(n, numbers, factors);
 *   use(result.get());
 *
 * Accelerators come from NAA_SPEC (naaice_ap2.h). What fails throws std::runtime_error with the reason, either invoke
 * or the future's get. */
#ifndef NAAICE_AP2_CPP_H
#define NAAICE_AP2_CPP_H

#include "naaice_ap2.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

/* One function on vectors of T. Connects with the first call, and again when sizes change. */
template <typename T>
class NAAHandler {
  static_assert(std::is_trivially_copyable<T>::value, "an accelerator gets bytes");

public:
  explicit NAAHandler(naa_function_code_t function_code) : function_code_(function_code) {}

  NAAHandler(const NAAHandler &) = delete;
  NAAHandler &operator=(const NAAHandler &) = delete;

  ~NAAHandler() {
    settle();
    disconnect();
  }

  /* Calls the function on copies of the inputs and returns; the future gets the output, of so many elements. If a call
   * of this handler is under way its end is waited for first. */
  template <typename... Inputs>
  std::future<std::vector<T>> invoke(std::size_t output_elements, const Inputs &...inputs) {
    settle();
    std::vector<std::vector<T>> copies{std::vector<T>(inputs)...};
    prepare(std::move(copies), output_elements);
    if (naa_invoke(&handle_) != 0) {
      throw failed();
    }
    std::promise<void> ended;
    running_ = ended.get_future();
    return std::async(std::launch::async, [this, ended = std::move(ended)]() mutable {
      const Signal signal{ended};
      return result();
    });
  }

private:
  /* Tells the handler, however the call ends. */
  struct Signal {
    std::promise<void> &ended;
    ~Signal() { ended.set_value(); }
  };

  static std::runtime_error failed() { return std::runtime_error(naaice_last_error()); }

  static naa_param_t parameter(std::vector<T> &vector) {
    return naa_param_t{vector.data(), vector.size() * sizeof(T), false};
  }

  bool fits(const std::vector<std::vector<T>> &inputs, std::size_t output_elements) const {
    if (handle_.comm_ctx == nullptr || handle_.comm_ctx->state >= NAAICE_ERROR ||
        inputs.size() != inputs_.size() || output_elements != output_.size()) {
      return false;
    }
    for (std::size_t i = 0; i < inputs.size(); i++) {
      if (inputs[i].size() != inputs_[i].size()) {
        return false;
      }
    }
    return true;
  }

  void prepare(std::vector<std::vector<T>> inputs, std::size_t output_elements) {
    if (fits(inputs, output_elements)) {
      /* The registered memory stays where it is. */
      for (std::size_t i = 0; i < inputs.size(); i++) {
        std::copy(inputs[i].begin(), inputs[i].end(), inputs_[i].begin());
      }
      return;
    }
    disconnect();
    inputs_ = std::move(inputs);
    output_.assign(output_elements, T());
    std::vector<naa_param_t> parameters;
    for (std::vector<T> &input : inputs_) {
      parameters.push_back(parameter(input));
    }
    naa_param_t output = parameter(output_);
    if (naa_create(function_code_, parameters.data(), static_cast<unsigned int>(parameters.size()), &output, 1,
                   &handle_) != 0) {
      throw failed();
    }
  }

  std::vector<T> result() {
    naa_status status{};
    if (naa_wait(&handle_, &status) != 0) {
      throw failed();
    }
#ifndef NAAICE_NEXT
    if (status.naa_error != NAA_SUCCESS) {
      char text[96];
      std::snprintf(text, sizeof text, "function %u failed with return code 0x%02x",
                    static_cast<unsigned int>(function_code_), static_cast<unsigned int>(status.naa_error));
      throw std::runtime_error(text);
    }
#endif
    return output_;
  }

  void settle() {
    if (running_.valid()) {
      running_.get();
    }
  }

  void disconnect() {
    if (handle_.comm_ctx != nullptr) {
      naa_finalize(&handle_);
      handle_.comm_ctx = nullptr;
    }
  }

  naa_function_code_t function_code_;
  naa_handle handle_{};
  std::vector<std::vector<T>> inputs_;
  std::vector<T> output_;
  std::future<void> running_;
};

#endif /* NAAICE_AP2_CPP_H */
