#include <malloc.h>
#include <torch/torch.h>

#include "bmojo/base/error.h"
#include "bmojo/cli/torch_verbs.h"

namespace bmojo {

nn::Model load_model(const std::string& folder, const std::vector<std::string>& settings) {
  const Checkpoint checkpoint(folder);
  auto config = checkpoint.config;
  apply_memory_settings(config, settings);
  return nn::Model(config, nn::load_parameters(checkpoint));
}

void use_threads(int64_t threads) {
  if (threads > 0) at::set_num_threads(static_cast<int>(threads));
}

void check_ids(const std::vector<int64_t>& ids, const Config& config, const std::string& subject) {
  require(!ids.empty(), "{}: ids must hold at least one id, got none", subject);
  for (const auto id : ids)
    require(id >= 0 && id < config.vocab_size, "{}: ids must be from 0 to {}, got {}", subject,
            config.vocab_size - 1, id);
}

}  // namespace bmojo

int main(int argc, char** argv) {
  // Activations come and go with every step: freed memory is kept for the next one, instead of
  // being given back to the system and faulted in again.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, -1);
  return bmojo::run(argc, argv, "bmojo",
                    {bmojo::add_score_verb, bmojo::add_generate_verb, bmojo::add_bench_verb});
}
