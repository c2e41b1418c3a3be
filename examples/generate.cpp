// generate MODEL TEXT [SEED]: continues a text. The ids that were drawn go to stderr, in one line.
// docs/library.md shows how to build it; bmojo generate with these settings writes the same.
#include <bmojo/bmojo.h>

#include <cstdint>
#include <exception>
#include <iostream>
#include <string>

int main(int argc, char** argv) {
  if (argc < 3) {
    std::cerr << "usage: generate MODEL TEXT [SEED]\n";
    return 2;
  }
  try {
    const bmojo::Model model(argv[1]);
    const auto tokenizer = model.tokenizer();
    if (!tokenizer) throw bmojo::InputError("model: must have a tokenizer, got none");

    // What is read stays in the state. A copy of it would go its own way.
    bmojo::State state = model.begin(argc > 3 ? std::stoull(argv[3]) : 0);
    state.read(model.encode_prompt(*tokenizer, argv[2]));

    const bmojo::Sampler sampler({.temperature = 0.8, .top_k = 40, .top_p = 0.95});
    bmojo::TextStream text(*tokenizer, /*continues=*/true);
    for (int i = 0; i < 64; ++i) {
      const std::int64_t id = sampler.draw(state, *tokenizer);
      state.read(id);
      std::cerr << id << ' ';
      if (id == model.eos_token()) break;
      std::cout << text.push(id) << std::flush;
    }
    std::cout << text.finish() << '\n';
    std::cerr << '\n';
  } catch (const std::exception& error) {
    std::cerr << "generate: " << error.what() << '\n';
    return dynamic_cast<const bmojo::InputError*>(&error) != nullptr ? 2 : 1;
  }
}
