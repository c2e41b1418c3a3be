#pragma once

#include <torch/torch.h>

#include "bmojo/train/trainer.h"
#include "tests/temp_folder.h"

namespace bmojo::train {

// A small model of each family, equal in nothing but size.
inline model::Config small_config(const std::string& family, int64_t vocab_size) {
  model::Config c = model::preset(family + "-tiny");
  c.vocab_size = vocab_size;
  c.hidden_size = 32;
  c.num_layers = 2;
  c.bos_token_id = c.eos_token_id = -1;
  if (c.has_ssm()) {
    c.ssm_inner_size = 40;
    c.ssm_state_size = 5;
    c.ssm_dt_rank = 3;
  }
  if (c.has_attention()) {
    c.num_heads = 4;
    c.num_kv_heads = 2;
    c.head_size = 8;
    if (c.window > 0) c.window = 16;
  }
  if (c.mlp_size > 0) c.mlp_size = 48;
  if (c.fading_tokens > 0) c.fading_tokens = 4;
  if (c.eidetic_tokens > 0) c.eidetic_tokens = 12;
  model::validate(c);
  return c;
}

inline constexpr std::array kFamilies = {"bmojo", "bmojo-f", "mamba", "transformer", "hybrid"};

// A trainer on a task, or on token shards, in a folder of its own.
inline std::unique_ptr<Trainer> make_trainer(const std::string& family, Recipe recipe,
                                             const std::filesystem::path& out) {
  std::optional<data::Task> task;
  std::shared_ptr<const data::TokenData> data;
  if (recipe.task.empty())
    data = open_data(recipe.data);
  else
    task = data::parse_task(recipe.task);
  const auto config = small_config(family, task ? task->vocab_size : data->vocab_size());
  recipe.threads = at::get_num_threads();
  const auto plan = resolve(recipe, config, task ? task->length : 0);
  Source source(recipe, plan, task, data);
  nn::Model model(config, nn::fresh_parameters(config, recipe.seed));
  return std::make_unique<Trainer>(
      recipe, plan, std::move(model), std::move(source), Workers(),
      Trainer::RunContext{.out = out, .stop_asked = [] { return false; }, .quiet = true});
}

}  // namespace bmojo::train
