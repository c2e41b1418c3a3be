#include <vector>

#include "bmojo/model/gguf_config.h"
#include "bmojo/model/gguf_header.h"
#include "bmojo/model/gguf_tokenizer.h"
#include "bmojo/model/tensors.h"
#include "tests/fuzz/support.h"

// A whole file. What is let through is read: every tensor, the model and the tokenizer.

namespace bmojo::fuzz {

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  parse_or_refuse([&] {
    const auto header = model::parse_gguf_header(file, "file");
    size_t sum = 0;
    for (const auto& tensor : header.tensors) {
      demand(tensor.begin <= tensor.end && tensor.end <= size, "tensor must lie within the file",
             tensor.name);
      std::vector<float> values(static_cast<size_t>(model::num_elements(tensor.shape)));
      model::decode_gguf(*tensor.type, file.subspan(tensor.begin, tensor.end - tensor.begin),
                         values);
      sum += tensor.end - tensor.begin;
    }
    demand(sum <= size, "tensors must not overlap");
    parse_or_refuse([&] { model::tokenizer_of_gguf(header, "file"); });
    const auto model = model::model_of_gguf(header, "file");
    for (const auto& spec : model::tensor_specs(model.config))
      demand(!model::gguf_name(model.family, spec.name).empty(), "tensor must have a name",
             spec.name);
  });
  return 0;
}

}  // namespace bmojo::fuzz
