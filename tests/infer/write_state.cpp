// infer_write_state MODEL FILE ID…: reads the ids and saves the state, for the command-line tests.
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "bmojo/infer/model.h"
#include "bmojo/infer/snapshot.h"

int main(int argc, char** argv) {
  try {
    const bmojo::model::Checkpoint checkpoint(argv[1]);
    const bmojo::infer::Model model(checkpoint.tensors, checkpoint.config, {}, 1);
    std::vector<int64_t> ids;
    for (int i = 3; i < argc; ++i) ids.push_back(std::stoll(argv[i]));
    bmojo::infer::Snapshot snapshot{
        {bmojo::model::digest_of(checkpoint.tensors), model.type(), model.config()},
        model.begin(),
        std::vector<float>(static_cast<size_t>(model.config().vocab_size)),
        {3, ids.size(), ids, "", ""}};
    std::vector<float> hidden(ids.size() * static_cast<size_t>(model.config().hidden_size));
    const bmojo::infer::Input input{&snapshot.state, ids};
    model.forward({&input, 1}, hidden.data());
    if (!ids.empty())
      model.logits(hidden.data() + hidden.size() - model.config().hidden_size, 1,
                   snapshot.logits.data());
    bmojo::infer::save_snapshot(snapshot, argv[2]);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
