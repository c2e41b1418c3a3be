#include "bmojo/model/config.h"

#include <gtest/gtest.h>

#include "bmojo/base/error.h"
#include "bmojo/model/tensors.h"
#include "tests/temp_folder.h"

namespace bmojo::model {
namespace {

TEST(Config, EveryFieldGoesThroughJson) {
  for (const auto& name : preset_names()) {
    const auto config = preset(name);
    validate(config);
    EXPECT_EQ(config_from_json(base::parse_json(to_json(config).dump(), "test"), "test"), config)
        << name;
  }
}

TEST(Config, SetReadsEveryType) {
  auto config = preset("bmojo-tiny");
  set_field(config, "window=17");
  set_field(config, "norm_eps=1e-6");
  set_field(config, "innovation_bias=false");
  set_field(config, "pattern=ssm,attention");
  EXPECT_EQ(config.window, 17);
  EXPECT_EQ(config.norm_eps, 1e-6);
  EXPECT_FALSE(config.innovation_bias);
  EXPECT_EQ(config.kind(0), LayerKind::ssm);
  EXPECT_EQ(config.kind(3), LayerKind::attention);
}

TEST(Config, KindsInUseAreThoseOfTheLayersThatExist) {
  auto config = preset("hybrid-tiny");
  config.num_layers = 1;
  EXPECT_TRUE(config.has_ssm());
  EXPECT_FALSE(config.has_attention());
}

struct Wrong {
  const char *preset, *set, *says;
};

class WrongConfig : public testing::TestWithParam<Wrong> {};

TEST_P(WrongConfig, IsRefusedByName) {
  const auto& wrong = GetParam();
  try {
    auto config = preset(wrong.preset);
    std::string_view rest = wrong.set;
    while (!rest.empty()) {
      const auto end = rest.find(' ');
      set_field(config, rest.substr(0, end));
      rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
    validate(config);
    FAIL() << "accepted: " << wrong.set;
  } catch (const base::Error& error) {
    EXPECT_NE(std::string(error.what()).find(wrong.says), std::string::npos) << error.what();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongConfig,
    testing::Values(
        Wrong{"no-such", "", "'no-such' is not known"},
        Wrong{"bmojo-tiny", "window", "must be key=value"},
        Wrong{"bmojo-tiny", "windoww=1", "'windoww' is not known"},
        Wrong{"bmojo-tiny", "window=many", "window must be a whole number in digits, got \"many\""},
        Wrong{"bmojo-tiny", "window=1.5", "window must be a whole number in digits, got \"1.5\""},
        Wrong{"bmojo-tiny", "window=1e3", "window must be a whole number in digits, got \"1e3\""},
        Wrong{"bmojo-tiny", "window=99999999999999999999",
              "window must be a whole number in digits, got \"99999999999999999999\""},
        Wrong{"bmojo-tiny", "norm_eps=true", "norm_eps must be a number"},
        Wrong{"bmojo-tiny", "innovation_bias=1", "innovation_bias must be true or false"},
        Wrong{"bmojo-tiny", "vocab_size=0", "vocab_size must be from 1"},
        Wrong{"bmojo-tiny", "hidden_size=-1", "hidden_size must be from 1"},
        Wrong{"bmojo-tiny", "num_layers=0", "num_layers must be from 1"},
        Wrong{"bmojo-tiny", "pattern=mamba", "pattern must list bmojo, ssm or attention"},
        Wrong{"bmojo-tiny", "pattern=", "pattern must list"},
        Wrong{"bmojo-tiny", "pattern=ssm,,bmojo", "pattern must list"},
        Wrong{"bmojo-tiny", "norm_eps=0", "norm_eps must be above 0"},
        Wrong{"bmojo-tiny", "rope_theta=-1", "rope_theta must be 0"},
        Wrong{"bmojo-tiny", "predictor_decay=0", "predictor_decay must be above 0"},
        Wrong{"bmojo-tiny", "predictor_decay=1.5", "predictor_decay must be above 0"},
        Wrong{"bmojo-tiny", "fading_mode=soft", "fading_mode must be chunk or sliding"},
        Wrong{
            "bmojo-tiny", "eidetic_rule=newest",
            "eidetic_rule must be one of innovation, first, recent, random, oracle, got 'newest'"},
        Wrong{"bmojo-tiny", "window=-1", "window must be from 0"},
        Wrong{"bmojo-tiny", "window=0", "window must be at least 1 with fading or eidetic"},
        Wrong{"bmojo-tiny", "predictor_taps=0", "predictor_taps must be at least 1"},
        Wrong{"bmojo-tiny", "fading_tokens=0 eidetic_tokens=0 fading_residual=false",
              "use pattern=attention"},
        Wrong{"bmojo-tiny", "num_heads=3 num_kv_heads=2", "num_heads must be a multiple"},
        Wrong{"bmojo-tiny", "num_kv_heads=0", "num_kv_heads must be from 1"},
        Wrong{"bmojo-tiny", "head_size=31 rope_theta=10000", "head_size must be even"},
        Wrong{"bmojo-tiny", "ssm_inner_size=0", "ssm_inner_size must be from 1"},
        Wrong{"bmojo-tiny", "ssm_conv_taps=0", "ssm_conv_taps must be from 1"},
        Wrong{"bmojo-tiny", "ssm_dt_rank=0", "ssm_dt_rank must be from 1"},
        Wrong{"bmojo-tiny", "ssm_state_size=0", "ssm_state_size must be from 1"},
        Wrong{"bmojo-tiny", "mlp_size=-1", "mlp_size must be from 0"},
        Wrong{"bmojo-tiny", "eos_token_id=32000", "eos_token_id must be from -1 to 31999"},
        Wrong{"bmojo-tiny", "bos_token_id=-2", "bos_token_id must be from -1"},
        // Fields that no layer uses are counted with all the same.
        Wrong{"mamba-tiny", "num_kv_heads=4611686018427387904", "num_kv_heads must be from 0"},
        Wrong{"mamba-tiny", "head_size=-1", "head_size must be from 0"},
        Wrong{"transformer-tiny", "ssm_inner_size=9223372036854775807",
              "ssm_inner_size must be from 0"}));

// Whatever a file holds, a message is one short printable line.
TEST(Config, WhatIsShownOfItIsPrintable) {
  const auto refusal = [](const std::string& name, const std::string& value) {
    auto json = to_json(preset("bmojo-tiny"));
    json[name] = value;
    return test::message_of<base::Error>([&] { config_from_json(json, "file"); });
  };
  EXPECT_TRUE(test::contains(refusal("window\x7f\n", "1"), "field 'window\\x7f\\x0a'"));
  EXPECT_TRUE(test::contains(refusal("window", "\x7f" + std::string(2000, 'a')), "got \"\\x7faaa"));
  EXPECT_TRUE(test::contains(refusal("model_type", "\x7f" + std::string(2000, 'a')), "\\x7faaa"));
  EXPECT_TRUE(test::contains(refusal("fading_mode", "\x7f"), "got '\\x7f'"));
  EXPECT_TRUE(test::contains(test::message_of<base::Error>([] {
                               auto config = preset("bmojo-tiny");
                               set_field(config, "win\x7f=1");
                             }),
                             "field 'win\\x7f'"));
}

TEST(Config, PresetsAreWhatTheyAreNamed) {
  for (const auto& name : preset_names()) {
    const auto c = preset(name);
    const bool bmojo = name.starts_with("bmojo"), transformer = name.starts_with("transformer");
    EXPECT_EQ(c.vocab_size, 32000) << name;
    EXPECT_TRUE(c.tied_embeddings) << name;
    EXPECT_EQ(c.rope_theta > 0, transformer) << name;
    EXPECT_EQ(c.window, bmojo || name.starts_with("hybrid") ? 512 : 0) << name;
    EXPECT_EQ(c.eidetic_tokens > 0, bmojo && !name.starts_with("bmojo-f")) << name;
    if (bmojo) {
      EXPECT_EQ(c.fading_residual, !name.starts_with("bmojo-paper")) << name;
    }
    if (c.has_attention()) {
      EXPECT_EQ(c.num_kv_heads * 4, c.num_heads) << name;
    }
  }
}

TEST(Config, ThePaperIsOursWithoutItsTwoAdditions) {
  for (const char* size : {"tiny", "130m", "370m", "790m", "1.4b"}) {
    auto ours = preset(fmt::format("bmojo-{}", size));
    EXPECT_TRUE(ours.fading_residual && ours.innovation_bias) << size;
    ours.fading_residual = ours.innovation_bias = false;
    EXPECT_EQ(preset(fmt::format("bmojo-paper-{}", size)), ours) << size;
  }
}

TEST(Config, FamiliesOfASizeHaveTheSameParameters) {
  const double nominal[] = {0, 130e6, 370e6, 790e6, 1.4e9};
  const char* sizes[] = {"tiny", "130m", "370m", "790m", "1.4b"};
  for (int i = 0; i < 5; ++i) {
    const auto count = [&](const char* family, auto&& of) {
      return static_cast<double>(of(preset(fmt::format("{}-{}", family, sizes[i]))));
    };
    double low = 1e18, high = 0;
    for (const char* family :
         {"bmojo", "bmojo-paper", "bmojo-f", "mamba", "transformer", "hybrid"}) {
      const double body = count(family, count_parameters_without_embeddings);
      low = std::min(low, body);
      high = std::max(high, body);
      if (nominal[i] > 0) {
        EXPECT_NEAR(count(family, count_parameters) / nominal[i], 1, 0.05) << family << sizes[i];
      }
    }
    EXPECT_LT(high / low, 1.03) << sizes[i];
  }
}

}  // namespace
}  // namespace bmojo::model
