// Whole = in segments = one token at a time = batched = packed, in fp32 on the fused kernels, every
// way with the selections that it makes itself (docs/model.md, Selections and comparisons).

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "tests/nn/oracle.h"
#include "tests/nn/support.h"

namespace bmojo::nn {
namespace {

using test::expect_same_state, test::Oracle, test::random_config, test::relative_error,
    test::row_of, test::strong_parameters;

// What must not be left to a random draw. Every other option comes from random_config().
struct Case {
  const char* name;
  const char* pattern;
  int64_t num_layers, window, fading_tokens;
  const char* fading_mode;
  int64_t eidetic_tokens;
  double rope_theta;
  // Documents are so many times longer; above 1 the model is as wide as vectors and tiles like it.
  int64_t scale = 1;
};

// Documents have up to kLength tokens: sets of 1 to 5 overflow many times.
constexpr int64_t kLength = 41;
const Case kCases[] = {
    {"chunk", "bmojo", 2, 5, 3, "chunk", 4, 0},
    {"chunk rotary", "bmojo", 2, 5, 3, "chunk", 4, 100},
    {"sliding", "bmojo", 2, 5, 3, "sliding", 4, 0},
    {"sliding rotary", "bmojo", 2, 5, 3, "sliding", 4, 100},
    {"w 1 chunk", "bmojo", 2, 1, 3, "chunk", 3, 0},
    {"w 1 sliding rotary", "bmojo", 2, 1, 3, "sliding", 3, 100},
    {"m_f above w, chunk rotary", "bmojo", 2, 4, 10, "chunk", 5, 100},
    {"m_f above w, sliding", "bmojo", 2, 4, 10, "sliding", 5, 0},
    {"room for one", "bmojo", 2, 6, 2, "chunk", 1, 100},
    {"room for all", "bmojo", 2, 6, 2, "sliding", 1000, 0},
    {"eidetic alone", "bmojo", 2, 7, 0, "chunk", 4, 0},
    {"bmojo-f chunk", "bmojo", 2, 5, 3, "chunk", 0, 100},
    {"bmojo-f sliding", "bmojo", 2, 5, 7, "sliding", 0, 0},
    {"ssm", "ssm", 2, 0, 0, "chunk", 0, 0},
    {"attention sliding", "attention", 2, 6, 0, "chunk", 0, 0},
    {"attention sliding rotary", "attention", 2, 6, 0, "chunk", 0, 100},
    {"attention w 1", "attention", 2, 1, 0, "chunk", 0, 0},
    {"attention unlimited", "attention", 2, 0, 0, "chunk", 0, 0},
    {"attention unlimited rotary", "attention", 2, 0, 0, "chunk", 0, 100},
    {"hybrid", "ssm,attention", 2, 6, 0, "chunk", 0, 0},
    {"hybrid unlimited rotary", "ssm,attention", 4, 0, 0, "chunk", 0, 100},
    {"bmojo behind attention", "attention,bmojo", 2, 5, 3, "chunk", 4, 100},
    {"bmojo before ssm", "bmojo,ssm", 2, 5, 3, "sliding", 4, 0},
    {"all kinds", "ssm,attention,bmojo", 3, 4, 6, "chunk", 5, 0},
    {"bmojo between others", "attention,bmojo,ssm,bmojo", 4, 3, 2, "sliding", 4, 100},
    // Several tiles of keys and queries, chunks above and below a tile, sets of dozens.
    {"wide, chunk rotary", "bmojo", 2, 48, 20, "chunk", 40, 100, 7},
    {"wide, m_f above w, sliding", "ssm,bmojo", 4, 70, 90, "sliding", 33, 0, 7},
};
constexpr uint64_t kSeeds = 2;

void widen(model::Config& c) {
  c.vocab_size = 200;
  c.hidden_size = 72;
  c.ssm_inner_size = 80;
  c.ssm_state_size = 16;
  c.ssm_dt_rank = 5;
  c.num_kv_heads = 2;
  c.num_heads = 4;
  c.head_size = 16;
  if (c.mlp_size > 0) c.mlp_size = 100;
}

Model make_model(const Case& one, uint64_t seed) {
  auto c = random_config(seed);
  if (one.scale > 1)
    widen(c);
  else
    c.norm_eps = 0.05;  // the norm of a few small outputs would show their rounding enlarged
  c.pattern = one.pattern;
  c.num_layers = one.num_layers;
  c.window = one.window;
  c.fading_tokens = one.fading_tokens;
  c.fading_mode = one.fading_mode;
  c.eidetic_tokens = one.eidetic_tokens;
  c.rope_theta = one.rope_theta;
  model::validate(c);
  auto parameters = strong_parameters(c, seed, at::kFloat);
  // Twice the queries: a softmax over forty keys is far from uniform, too.
  for (auto& [name, tensor] : parameters)
    if (name.ends_with("q_proj.weight")) tensor *= 2;
  return Model(c, parameters);
}

template <typename Work>
void for_each_model(Work&& work) {
  torch::NoGradGuard no_grad;
  uint64_t seed = 0;
  for (const auto& one : kCases)
    for (uint64_t i = 0; i < kSeeds; ++i, ++seed) {
      SCOPED_TRACE(fmt::format("{}, seed {}", one.name, seed));
      const auto model = make_model(one, seed);
      work(model, one.scale);
    }
}

// Rows of kLength·scale ids. make_model() has set the seed: the first row is the same in every
// test.
at::Tensor random_ids(const Model& model, int64_t rows, int64_t scale) {
  return at::randint(model.config().vocab_size, {rows, kLength * scale}, at::kLong);
}

std::vector<int64_t> times(std::vector<int64_t> sizes, int64_t scale) {
  for (auto& size : sizes) size *= scale;
  return sizes;
}

struct Call {
  at::Tensor ids;  // [B, L]
  CallOptions options;
};

// One document, as some way to read it has computed it.
struct Reading {
  int64_t document = kUnnamed;          //
  at::Tensor ids;                       // [n]
  at::Tensor hidden;                    // [n, D]
  std::vector<at::Tensor> innovations;  // a layer each: [n]; undefined without eidetic memory
  // A layer each: the positions that M holds after so many tokens, at each end of a piece.
  std::vector<std::map<int64_t, std::set<int64_t>>> kept;
  State state;  // after the document; empty where another one follows in its row
};

void append(at::Tensor& all, const at::Tensor& more) {
  if (more.defined()) all = all.defined() ? at::cat({all, more}) : more;
}

// Adds what a call computed of one piece.
void add_piece(Reading& reading, const Call& call, const Output& out, const Piece& piece,
               int64_t number) {
  const auto tokens = [&](const at::Tensor& x) {
    return x.defined() ? x[piece.sequence].narrow(0, piece.column, piece.count) : x;
  };
  if (const auto& names = call.options.documents; !names.empty())
    reading.document = names[piece.sequence * call.ids.size(1) + piece.column];
  append(reading.ids, tokens(call.ids));
  append(reading.hidden, tokens(out.hidden));
  reading.innovations.resize(out.innovations.size());
  reading.kept.resize(out.selections.size());
  for (size_t i = 0; i < out.selections.size(); ++i) {
    append(reading.innovations[i], tokens(out.innovations[i]));
    if (!out.selections[i].defined()) continue;
    auto& kept = reading.kept[i][piece.position + piece.count];
    for (int64_t j = 0; j < out.selections[i].size(1); ++j)
      if (const auto p = out.selections[i][number][j].item<int64_t>(); p != kNowhere)
        kept.insert(p);
  }
}

// Every document of some calls, by row, then time.
std::vector<std::vector<Reading>> read(const Model& model, const std::vector<Call>& calls) {
  std::vector<std::vector<Reading>> rows(calls[0].ids.size(0));
  State state;
  for (const auto& call : calls) {
    const Layout layout(
        model.config(),
        {call.ids.size(0), call.ids.size(1), call.options.lengths, call.options.documents},
        state.cursor, at::kFloat);
    const auto out = model.forward(call.ids, state, call.options);
    for (size_t i = 0; i < layout.pieces.size(); ++i) {
      const auto& piece = layout.pieces[i];
      if (piece.position == 0) rows[piece.sequence].emplace_back();
      add_piece(rows[piece.sequence].back(), call, out, piece, static_cast<int64_t>(i));
    }
    state = out.state;
  }
  for (size_t b = 0; b < rows.size(); ++b)
    rows[b].back().state = row_of(state, static_cast<int64_t>(b));
  return rows;
}

// The whole document in one call, with selections given to some layers.
Reading read_alone(const Model& model, const at::Tensor& ids, int64_t document = kUnnamed,
                   const std::vector<at::Tensor>& selections = {}) {
  Call call{ids.unsqueeze(0), {}};
  if (document != kUnnamed) call.options.documents.assign(ids.size(0), document);
  call.options.selections = selections;
  return read(model, {call})[0][0];
}

// Whether some set had to leave a token out: then rounding can decide between two.
bool overflowed(const Reading& whole) {
  return std::ranges::any_of(whole.kept, [](const auto& sets) {
    return std::ranges::any_of(sets,
                               [](const auto& at) { return std::ssize(at.second) < at.first; });
  });
}

// The first layer whose sets differ at the end of a chunk or of the document. Pieces of `whole` end
// nowhere else; those of other ways also where a call ends.
std::optional<size_t> differing_layer(const Reading& reading, const Reading& whole) {
  for (size_t i = 0; i < whole.kept.size(); ++i)
    for (const auto& [count, set] : whole.kept[i])
      if (reading.kept[i].at(count) != set) return i;
  return {};
}

// How far apart, relative to the largest, ε lies of the tokens that only one of the two keeps:
// those on either side of the cut.
double gap_at_the_cut(const Reading& reading, const Reading& whole, size_t layer) {
  double gap = 0;
  for (const auto& [count, set] : whole.kept[layer]) {
    const auto& other = reading.kept[layer].at(count);
    if (other.size() != set.size()) return INFINITY;
    std::vector<int64_t> apart;
    std::ranges::set_symmetric_difference(set, other, std::back_inserter(apart));
    if (apart.empty()) continue;
    const auto epsilon = whole.innovations[layer].index_select(0, torch::tensor(apart));
    const auto [low, high] = at::aminmax(epsilon);
    const double between = 1 - (low / high).item<double>();
    if (!(between <= gap)) gap = between;  // NaN is no tie
  }
  return gap;
}

// The sets of `reading` as a selection for `whole`.
at::Tensor selection_of(const Reading& reading, const Reading& whole, size_t layer) {
  std::vector<at::Tensor> pieces;
  const auto m = static_cast<int64_t>(whole.kept[layer].rbegin()->second.size());
  for (const auto& [count, set] : whole.kept[layer]) {
    auto places = at::full({m}, kNowhere, at::kLong);
    int64_t i = 0;
    for (const auto position : reading.kept[layer].at(count)) places[i++] = position;
    pieces.push_back(places);
  }
  return at::stack(pieces);
}

// fp32 rounds by 6e-8. The kernels give the same bits in every way; a product of matrices adds in
// an order that depends on its number of rows. Up to four layers, recurrences over 287 tokens and
// large scores in a softmax make hundreds of it: 5e-5 at most on AVX-512, and other CPUs add
// otherwise.
constexpr double kRounding = 3e-4;
// Two selections may differ where ε is nearer than this, in this part of the draws.
constexpr double kTie = 1e-4, kMostTies = 0.02;

class FusedEquivalence : public testing::Test {
 protected:
  static void TearDownTestSuite() {
    EXPECT_LE(num_ties_, kMostTies * static_cast<double>(num_draws_)) << "of " << num_draws_;
  }

  // A draw: `reading` against the document in one call.
  static void expect_same(const Model& model, const Reading& reading, Reading whole) {
    num_draws_ += overflowed(whole);
    bool differs = false;
    std::vector<at::Tensor> given(model.layers().size());
    while (const auto layer = differing_layer(reading, whole)) {
      differs = true;
      ASSERT_FALSE(given[*layer].defined()) << "layer " << *layer;
      ASSERT_LE(gap_at_the_cut(reading, whole, *layer), kTie) << "layer " << *layer;
      given[*layer] = selection_of(reading, whole, *layer);
      whole = read_alone(model, reading.ids, reading.document, given);
    }
    num_ties_ += differs;
    ASSERT_EQ(reading.hidden.scalar_type(), at::kFloat);
    EXPECT_LT(relative_error(reading.hidden, whole.hidden), kRounding);
    for (size_t i = 0; i < whole.innovations.size(); ++i)
      if (whole.innovations[i].defined()) {
        EXPECT_LT(relative_error(reading.innovations[i], whole.innovations[i]), kRounding) << i;
      }
    if (!reading.state.layers.empty()) expect_same_state(reading.state, whole.state, kRounding);
  }

 private:
  inline static int64_t num_draws_ = 0, num_ties_ = 0;
};

double median(std::vector<double> x) {
  std::ranges::nth_element(x, x.begin() + std::ssize(x) / 2);
  return x[x.size() / 2];
}

// Over the tokens of every document and layer ε spans a factor of 10, and of every layer's queries
// half give at least 0.3 of their attention to one key: a wrong key or a lost token shows. The ids
// are those of the first row in every test below.
TEST_F(FusedEquivalence, WeightsAreStrong) {
  for_each_model([](const Model& model, int64_t scale) {
    const auto exact = model.to(at::TensorOptions().dtype(at::kDouble));
    const auto ids = random_ids(model, 1, scale)[0];
    auto x = exact.parameter("embedding.weight").index_select(0, ids);
    for (int64_t i = 0; i < model.config().num_layers; ++i) {
      SCOPED_TRACE(i);
      const auto kind = model.config().kind(i);
      Oracle oracle(model.config(), kind, exact.parameters(), i);
      std::vector<at::Tensor> out;
      for (int64_t t = 0; t < ids.size(0); ++t) out.push_back(oracle.step(x[t]));
      x = at::stack(out);
      if (kind == model::LayerKind::bmojo && model.config().eidetic_tokens > 0) {
        const auto [low, high] = std::ranges::minmax(oracle.innovation);
        EXPECT_GE(high, 10 * low);
      }
      if (kind != model::LayerKind::ssm) {
        EXPECT_GE(median(oracle.largest_weights), 0.3);
      }
    }
  });
}

TEST_F(FusedEquivalence, EveryTwoWaySplit) {
  for_each_model([](const Model& model, int64_t scale) {
    const auto ids = random_ids(model, 1, scale);
    const auto whole = read_alone(model, ids[0]);
    for (int64_t split = 1; split < ids.size(1); ++split) {
      SCOPED_TRACE(split);
      const auto parts = ids.split_with_sizes({split, ids.size(1) - split}, 1);
      expect_same(model, read(model, {{parts[0], {}}, {parts[1], {}}})[0][0], whole);
    }
  });
}

TEST_F(FusedEquivalence, OneTokenAtATime) {
  for_each_model([](const Model& model, int64_t scale) {
    std::vector<Call> calls;
    for (const auto& token : random_ids(model, 2, scale).split(1, 1)) calls.push_back({token, {}});
    for (const auto& row : read(model, calls))
      expect_same(model, row[0], read_alone(model, row[0].ids));
  });
}

// Three rows in one call; then in ragged calls, where one row begins late and another waits.
TEST_F(FusedEquivalence, BatchedIsAlone) {
  for_each_model([](const Model& model, int64_t scale) {
    const auto ids = random_ids(model, 3, scale);
    const auto call = [&](int64_t start, int64_t length, std::vector<int64_t> lengths) {
      return Call{ids.narrow(1, start * scale, length * scale),
                  {times(std::move(lengths), scale), {}, {}}};
    };
    for (const auto& calls : {std::vector{call(0, kLength, {})},
                              std::vector{call(0, 13, {13, 0, 5}), call(13, 17, {4, 17, 0}),
                                          call(30, 11, {11, 9, 11})}})
      for (const auto& row : read(model, calls))
        expect_same(model, row[0], read_alone(model, row[0].ids));
  });
}

// Documents of many lengths, from one token on, in one call and cut into four.
TEST_F(FusedEquivalence, PackedIsSeparate) {
  const std::vector<std::pair<int64_t, int64_t>> packed = {
      // id, length: two rows of kLength
      {7, 1}, {3, 17}, {9, 2}, {4, 21}, {1, 19}, {2, 3}, {0, 12}, {5, 7}};
  for_each_model([&](const Model& model, int64_t scale) {
    const auto ids = random_ids(model, 2, scale);
    std::vector<int64_t> documents;
    for (const auto& [id, length] : packed) documents.insert(documents.end(), length * scale, id);
    const auto ids_of_documents = torch::tensor(documents).view(ids.sizes());
    for (const auto& some : {std::vector<int64_t>{kLength}, {7, 13, 1, 20}}) {
      const auto sizes = times(some, scale);
      const auto parts = ids.split_with_sizes(sizes, 1);
      const auto names = ids_of_documents.split_with_sizes(sizes, 1);
      std::vector<Call> calls;
      for (size_t i = 0; i < parts.size(); ++i) {
        const auto name = names[i].contiguous();
        const auto* data = name.const_data_ptr<int64_t>();
        calls.push_back({parts[i], {{}, {data, data + name.numel()}, {}}});
      }
      for (const auto& row : read(model, calls))
        for (const auto& reading : row) {
          SCOPED_TRACE(fmt::format("{} calls, document {}", calls.size(), reading.document));
          expect_same(model, reading, read_alone(model, reading.ids, reading.document));
        }
    }
  });
}

// The comparison itself: tokens that are kept for another reason than their ε are no ties.
TEST_F(FusedEquivalence, AnotherSelectionIsNoTie) {
  torch::NoGradGuard no_grad;
  const auto model = make_model(kCases[0], 0);
  const auto ids = random_ids(model, 1, 1)[0];
  const auto whole = read_alone(model, ids);
  std::vector<at::Tensor> latest;  // the last four of each chunk
  for (const auto& [count, set] : whole.kept[0]) latest.push_back(at::arange(count - 4, count));
  const auto other = read_alone(model, ids, kUnnamed, {at::stack(latest), at::Tensor()});
  EXPECT_EQ(differing_layer(other, whole), 0);
  EXPECT_GT(gap_at_the_cut(other, whole, 0), 100 * kTie);
  EXPECT_GT(relative_error(other.hidden, whole.hidden), 100 * kRounding);
  EXPECT_TRUE(at::equal(selection_of(other, whole, 0), at::stack(latest)));
}

}  // namespace
}  // namespace bmojo::nn
