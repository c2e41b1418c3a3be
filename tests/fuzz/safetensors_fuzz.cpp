#include "bmojo/model/safetensors_header.h"
#include "tests/fuzz/support.h"

// The first two bytes say how long the data section is, the rest is the header's text.

namespace bmojo::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const size_t data_bytes = data[0] + size_t{256} * data[1];
  parse_or_refuse([&] {
    const auto header =
        model::parse_safetensors_header(text_of(data + 2, size - 2), data_bytes, "file");
    // What is let through may be read.
    size_t sum = 0;
    for (const auto& tensor : header.tensors) {
      demand(tensor.begin <= tensor.end && tensor.end <= data_bytes,
             "tensor must lie within the data", tensor.name);
      const auto bytes =
          static_cast<size_t>(model::num_elements(tensor.shape)) * model::size_of(tensor.dtype);
      demand(tensor.end - tensor.begin == bytes, "tensor must fill its place", tensor.name);
      sum += bytes;
    }
    demand(sum == data_bytes, "tensors must fill the data");
  });
  return 0;
}

}  // namespace bmojo::fuzz
