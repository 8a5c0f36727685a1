"""Models of sound, and of other series in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .inputs import BATCH, Inputs, tokens, wave
from .rows import BODY, PATCHES, TOKENS, Row

CONV: dict[str, Any] = {
    **BODY,
    "vocab_size": 32,
    "conv_dim": [16, 16, 16],
    "conv_stride": [5, 4, 2],
    "conv_kernel": [10, 5, 3],
    "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "mask_time_prob": 0.0,
}
LAYER_NORM = {"feat_extract_norm": "layer", "do_stable_layer_norm": True}
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1, "vocab_size": 100}
SIDES = {"encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
WIDTHS = {"d_model": 32, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "max_target_positions": 20}


def spectrum() -> Inputs:
    return {"input_features": torch.randn(BATCH, 8, 20), "decoder_input_ids": tokens(length=5)}


def frames() -> Inputs:
    """Features by frame, frames first."""
    return {"input_features": torch.randn(BATCH, 20, 8), "decoder_input_ids": tokens(length=5)}


def patches() -> Inputs:
    return {"input_values": torch.randn(BATCH, 32, 16)}


def sound() -> Inputs:
    return {"input_values": torch.randn(BATCH, 1, 640)}


def features() -> Inputs:
    return {"input_features": torch.randn(BATCH, 20, 16)}


def spoken() -> Inputs:
    return {**wave(3200), "decoder_input_ids": tokens(length=5)}


def mel() -> Inputs:
    return {"input_features": torch.randn(BATCH, 12, 8), "noise_sequence": torch.randn(BATCH, 12, 64)}


AUDIO: Mapping[str, Row] = {
    "ast": Row("ASTModel", patches, {**PATCHES, "max_length": 32, "num_mel_bins": 16, "frequency_stride": 4,
                                     "time_stride": 8}),
    "dac": Row("DacModel", sound, {"encoder_hidden_size": 8, "downsampling_ratios": [2, 4], "decoder_hidden_size": 32,
                                   "n_codebooks": 2, "codebook_size": 16, "codebook_dim": 4}),
    "data2vec-audio": Row("Data2VecAudioModel", wave, {**CONV, "num_conv_pos_embeddings": 2,
                                                       "conv_pos_kernel_size": 3}),
    "encodec": Row("EncodecModel", sound, {"num_filters": 4, "hidden_size": 16, "upsampling_ratios": [4, 2],
                                           "num_lstm_layers": 1, "codebook_size": 16, "codebook_dim": 16}),
    "hubert": Row("HubertModel", wave, CONV),
    "mimi": Row("MimiModel", sound, {**BODY, "num_filters": 4, "upsampling_ratios": [4, 2], "head_dim": 8,
                                     "num_key_value_heads": 4, "codebook_size": 16, "codebook_dim": 16,
                                     "vector_quantization_hidden_dimension": 16, "num_quantizers": 3,
                                     "num_semantic_quantizers": 1, "upsample_groups": 32, "sliding_window": 8}),
    "moonshine": Row("MoonshineModel", spoken, {**TOKENS, "hidden_size": 32, "intermediate_size": 64,
                                                "encoder_num_hidden_layers": 1, "decoder_num_hidden_layers": 1,
                                                "encoder_num_attention_heads": 4, "decoder_num_attention_heads": 4}),
    "seamless-w2v-bert": Row("Wav2Vec2BertModel", features, {**BODY, "feature_projection_input_dim": 16,
                                                             "conv_depthwise_kernel_size": 5}),
    "sew": Row("SEWModel", wave, {**CONV, "squeeze_factor": 2}),
    "sew-d": Row("SEWDModel", wave, {**CONV, "squeeze_factor": 2, "max_position_embeddings": 64}),
    "speech-to-text": Row("Speech2TextModel", frames, {**SPECIAL, **SIDES, **WIDTHS, "input_feat_per_channel": 8,
                                                       "max_source_positions": 40, "conv_channels": 16}),
    "speecht5": Row("SpeechT5ForSpeechToText", spoken, {**CONV, **SPECIAL, **SIDES, "hidden_size": 32,
                                                        "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}),
    "unispeech": Row("UniSpeechModel", wave, CONV),
    "unispeech-sat": Row("UniSpeechSatModel", wave, CONV),
    "univnet": Row("UnivNetModel", mel, {"num_mel_bins": 8, "model_hidden_channels": 8, "resblock_stride_sizes": [2, 2],
                                         "resblock_kernel_sizes": [3, 3],
                                         "resblock_dilation_sizes": [[1, 3], [1, 3]]}),
    "wav2vec2": Row("Wav2Vec2ForCTC", wave, CONV),
    "wav2vec2-large": Row("Wav2Vec2Model", wave, {**CONV, **LAYER_NORM}),
    "wav2vec2-conformer": Row("Wav2Vec2ConformerModel", wave, {**CONV, "conv_depthwise_kernel_size": 5}),
    "wavlm": Row("WavLMModel", wave, CONV),
    "whisper": Row("WhisperModel", spectrum, {**SPECIAL, **SIDES, **WIDTHS, "num_mel_bins": 8,
                                              "max_source_positions": 10}),
}  # fmt: skip


def past() -> Inputs:
    return {"past_values": torch.randn(BATCH, 16, 3)}


def dated() -> Inputs:
    """A series with the features of its dates, past and future."""
    return {
        "past_values": torch.rand(BATCH, 12) + 1,
        "past_time_features": torch.randn(BATCH, 12, 2),
        "past_observed_mask": torch.ones(BATCH, 12),
        "future_values": torch.rand(BATCH, 4) + 1,
        "future_time_features": torch.randn(BATCH, 4, 2),
    }


def journey() -> Inputs:
    return {
        "states": torch.randn(BATCH, 6, 5),
        "actions": torch.randn(BATCH, 6, 2),
        "rewards": torch.randn(BATCH, 6, 1),
        "returns_to_go": torch.randn(BATCH, 6, 1),
        "timesteps": torch.arange(6).expand(BATCH, 6).contiguous(),
        "attention_mask": torch.ones(BATCH, 6),
    }


FORECAST: dict[str, Any] = {
    **SIDES, "d_model": 16, "encoder_ffn_dim": 32, "decoder_ffn_dim": 32, "prediction_length": 4, "context_length": 8,
    "lags_sequence": [1, 2, 4], "num_time_features": 2,
}  # fmt: skip

SERIES: Mapping[str, Row] = {
    "autoformer": Row("AutoformerModel", dated, {**FORECAST, "moving_average": 3, "label_length": 4}),
    "decision-transformer": Row("DecisionTransformerModel", journey, {"state_dim": 5, "act_dim": 2, "hidden_size": 32,
                                                                      "n_layer": 2, "n_head": 4, "max_ep_len": 20}),
    "informer": Row("InformerModel", dated, {**FORECAST, "attention_type": "full"}),
    "patchtsmixer": Row("PatchTSMixerModel", past, {"context_length": 16, "patch_length": 4, "patch_stride": 4,
                                                    "num_input_channels": 3, "d_model": 16, "num_layers": 2}),
    "patchtst": Row("PatchTSTModel", past, {"context_length": 16, "patch_length": 4, "patch_stride": 4,
                                            "num_input_channels": 3, "d_model": 16, "num_hidden_layers": 2,
                                            "num_attention_heads": 4, "ffn_dim": 32}),
    "time-series-transformer": Row("TimeSeriesTransformerModel", dated, FORECAST),
}  # fmt: skip
