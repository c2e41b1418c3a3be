#include <vector>

#include "bmojo/model/gguf_config.h"
#include "bmojo/model/gguf_header.h"
#include "bmojo/model/gguf_tokenizer.h"
#include "bmojo/model/tensors.h"
#include "tests/fuzz/support.h"

// A whole file. What is let through is read: every tensor, the model and the tokenizer.

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace bmojo;
  const auto file = std::as_bytes(std::span(data, size));
  fuzz::parse_or_refuse([&] {
    const auto header = parse_gguf_header(file, "file");
    size_t sum = 0;
    for (const auto& tensor : header.tensors) {
      fuzz::demand(tensor.begin <= tensor.end && tensor.end <= size,
                   "tensor must lie within the file", tensor.name);
      std::vector<float> values(static_cast<size_t>(num_elements(tensor.shape)));
      decode_gguf(*tensor.type, file.subspan(tensor.begin, tensor.end - tensor.begin), values);
      sum += tensor.end - tensor.begin;
    }
    fuzz::demand(sum <= size, "tensors must not overlap");
    fuzz::parse_or_refuse([&] { tokenizer_of_gguf(header, "file"); });
    const auto model = model_of_gguf(header, "file");
    for (const auto& spec : tensor_specs(model.config))
      fuzz::demand(!gguf_name(model.family, spec.name).empty(), "tensor must have a name",
                   spec.name);
  });
  return 0;
}
