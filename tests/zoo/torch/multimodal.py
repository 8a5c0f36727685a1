"""Models of texts together with images, sounds or boxes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .inputs import BATCH, LENGTH, Inputs, image, mask, masked, tokens
from .rows import BODY, GROUPED, PATCHES, TEXT, TOKENS, Row
from .vision import WINDOWS

IMAGE_TOKEN = 99
CLIP_TEXT = {**TEXT, "max_position_embeddings": 20}
PAIR: dict[str, Any] = {"text_config": CLIP_TEXT, "vision_config": PATCHES, "projection_dim": 16}
LLAMA = {**GROUPED, "model_type": "llama"}
CLIP_VISION = {**PATCHES, "model_type": "clip_vision_model"}
SIGLIP_VISION = {**PATCHES, "model_type": "siglip_vision_model"}


def pair() -> Inputs:
    return {**masked(), **image()}


def unmasked_pair() -> Inputs:
    return {"input_ids": tokens(), **image()}


def placed(count: int) -> Inputs:
    """A text in which ``count`` tokens stand for an image."""
    ids = tokens(1, LENGTH + count, high=90)
    ids[:, 2 : 2 + count] = IMAGE_TOKEN
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), **image(batch=1)}


def prefixed() -> Inputs:
    """Like ``placed``: image and question see each other, what follows sees what was before it."""
    found = placed(16)
    kinds = torch.zeros_like(found["input_ids"])
    kinds[:, -3:] = 1
    return {**found, "token_type_ids": kinds}


def many_images() -> Inputs:
    """Like ``placed``, the images one axis deeper."""
    found = placed(4)
    return {**found, "pixel_values": found["pixel_values"][:, None]}


def masked_patches() -> Inputs:
    return {**pair(), "pixel_mask": torch.ones(BATCH, 32, 32, dtype=torch.int64)}


def regions() -> Inputs:
    """A text and the features of five regions of an image."""
    return {**masked(), "visual_feats": torch.randn(BATCH, 5, 16), "visual_pos": torch.rand(BATCH, 5, 4)}


def visual_embeds() -> Inputs:
    return {**masked(), "visual_embeds": torch.randn(BATCH, 5, 16)}


def page() -> Inputs:
    corners = torch.randint(0, 40, (BATCH, LENGTH, 2))
    return {**pair(), "bbox": torch.cat([corners, corners + torch.randint(1, 20, corners.shape)], -1)}


def heard() -> Inputs:
    return {**masked(), "input_features": torch.randn(BATCH, 1, 32, 16), "is_longer": torch.zeros(BATCH, 1).bool()}


def queried() -> Inputs:
    return {"pixel_values": torch.randn(1, 3, 32, 32), "input_ids": tokens(2), "attention_mask": mask()}


def clip_video() -> Inputs:
    return {"pixel_values": torch.randn(1, 4, 3, 32, 32), **masked()}


def written() -> Inputs:
    return {**image(), "decoder_input_ids": tokens(length=5)}


def flat_patches() -> Inputs:
    """Patches of two images with the row and column of each in front."""
    places = torch.cartesian_prod(torch.arange(1.0, 4), torch.arange(1.0, 4)).expand(BATCH, 9, 2)
    flat = torch.cat([places, torch.randn(BATCH, 9, 48)], -1)
    return {"flattened_patches": flat, "attention_mask": torch.ones(BATCH, 9), "decoder_input_ids": tokens(length=5)}


def cut_patches() -> Inputs:
    """Patches of an image of four by four, as SigLIP 2 takes them."""
    return {
        **masked(),
        "pixel_values": torch.randn(BATCH, 16, 192),
        "pixel_attention_mask": torch.ones(BATCH, 16, dtype=torch.int64),
        "spatial_shapes": torch.tensor([[4, 4]] * BATCH),
    }


MULTIMODAL: Mapping[str, Row] = {
    "align": Row("AlignModel", pair, {
        "text_config": TEXT, "projection_dim": 8,
        "vision_config": {"kernel_sizes": [3], "in_channels": [8], "out_channels": [8], "strides": [1],
                          "num_block_repeats": [1], "expand_ratios": [1], "depthwise_padding": [], "hidden_dim": 32,
                          "width_coefficient": 0.25, "image_size": 32}}),
    "altclip": Row("AltCLIPModel", pair, {**PAIR, "text_config": {**TEXT, "project_dim": 32}}),
    "blip": Row("BlipModel", pair, {**PAIR, "text_config": {**TEXT, "encoder_hidden_size": 32}}),
    "blip-2": Row("Blip2ForConditionalGeneration", lambda: placed(5), {
        "vision_config": PATCHES,
        "text_config": {**TEXT, "model_type": "opt", "ffn_dim": 64, "word_embed_proj_dim": 32},
        "qformer_config": {**TEXT, "encoder_hidden_size": 32, "cross_attention_frequency": 1},
        "num_query_tokens": 5, "image_token_index": IMAGE_TOKEN}),
    "bridgetower": Row("BridgeTowerModel", pair, {
        **BODY, "hidden_size": 64, "text_config": {**TEXT, "hidden_size": 64},
        "vision_config": {"hidden_size": 64, "num_hidden_layers": 2, "image_size": 32, "patch_size": 8,
                          "intermediate_size": 64}}),
    "chinese-clip": Row("ChineseCLIPModel", pair, PAIR),
    "clap": Row("ClapModel", heard, {
        "text_config": TEXT, "projection_dim": 16,
        "audio_config": {"spec_size": 32, "num_mel_bins": 16, "window_size": 2, "patch_size": 2, "patch_stride": [2, 2],
                         "patch_embeds_hidden_size": 16, "hidden_size": 64, "depths": [1, 1, 1],
                         "num_attention_heads": [2, 2, 2], "num_hidden_layers": 3, "enable_fusion": False}}),
    "clip": Row("CLIPModel", pair, PAIR),
    "clipseg": Row("CLIPSegForImageSegmentation", unmasked_pair, {
        **PAIR, "projection_dim": 32, "extract_layers": [0, 1], "reduce_dim": 8, "decoder_num_attention_heads": 2,
        "decoder_intermediate_size": 16}),
    "donut": Row("DonutSwinModel", image, WINDOWS),
    "flava": Row("FlavaModel", pair, {
        "image_config": PATCHES, "text_config": TEXT, "multimodal_config": BODY, "hidden_size": 32}),
    "git": Row("GitForCausalLM", pair, {**TEXT, "vision_config": PATCHES}),
    "groupvit": Row("GroupViTModel", pair, {
        "text_config": CLIP_TEXT, "projection_dim": 16, "projection_intermediate_dim": 32,
        "vision_config": {**PATCHES, "depths": [1, 1], "num_group_tokens": [4, 2], "num_output_groups": [4, 2]}}),
    "idefics3": Row("Idefics3ForConditionalGeneration", many_images, {
        "vision_config": PATCHES, "text_config": LLAMA, "image_token_id": IMAGE_TOKEN, "scale_factor": 2}),
    "internvl": Row("InternVLForConditionalGeneration", lambda: placed(4), {
        "vision_config": {**PATCHES, "image_size": [32, 32], "patch_size": [8, 8]},
        "text_config": {**LLAMA, "model_type": "qwen2"}, "image_token_id": IMAGE_TOKEN}),
    "layoutlmv3": Row("LayoutLMv3Model", page, {
        **TEXT, "input_size": 32, "patch_size": 8, "max_2d_position_embeddings": 64, "coordinate_size": 6,
        "shape_size": 4}),
    "llava": Row("LlavaForConditionalGeneration", lambda: placed(16), {
        "vision_config": CLIP_VISION, "text_config": LLAMA, "image_token_index": IMAGE_TOKEN}),
    "lxmert": Row("LxmertModel", regions, {**BODY, "vocab_size": 100, "l_layers": 1, "x_layers": 1, "r_layers": 1,
                                          "visual_feat_dim": 16}),
    "metaclip-2": Row("MetaClip2Model", pair, PAIR),
    "owlvit": Row("OwlViTForObjectDetection", queried, {**PAIR, "projection_dim": 32}),
    "paligemma": Row("PaliGemmaForConditionalGeneration", prefixed, {
        "vision_config": SIGLIP_VISION, "text_config": {**GROUPED, "model_type": "gemma", "head_dim": 8},
        "projection_dim": 32, "image_token_index": IMAGE_TOKEN}),
    "pix2struct": Row("Pix2StructForConditionalGeneration", flat_patches, {
        "text_config": {**TOKENS, "hidden_size": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1, "num_heads": 4},
        "vision_config": {"hidden_size": 32, "patch_embed_hidden_size": 48, "d_ff": 64, "d_kv": 8,
                          "num_hidden_layers": 1, "num_attention_heads": 4, "seq_len": 16}}),
    "siglip": Row("SiglipModel", unmasked_pair, {"text_config": CLIP_TEXT, "vision_config": PATCHES}),
    "siglip2": Row("Siglip2Model", cut_patches, {
        "text_config": {**CLIP_TEXT, "projection_size": 32}, "vision_config": {**BODY, "patch_size": 8,
                                                                              "num_patches": 16}}),
    "smolvlm": Row("SmolVLMForConditionalGeneration", many_images, {
        "vision_config": PATCHES, "text_config": LLAMA, "image_token_id": IMAGE_TOKEN, "scale_factor": 2}),
    "vilt": Row("ViltModel", masked_patches, {**TEXT, "image_size": 32, "patch_size": 8, "max_image_length": -1}),
    "vipllava": Row("VipLlavaForConditionalGeneration", lambda: placed(16), {
        "vision_config": CLIP_VISION, "text_config": LLAMA, "image_token_index": IMAGE_TOKEN,
        "vision_feature_layers": [-2, -1]}),
    "vision-encoder-decoder": Row("VisionEncoderDecoderModel", written, {
        "encoder": {**PATCHES, "model_type": "vit"},
        "decoder": {**TEXT, "model_type": "gpt2", "n_embd": 32, "n_layer": 1, "n_head": 4,
                    "add_cross_attention": True}}),
    "visual-bert": Row("VisualBertModel", visual_embeds, {**TEXT, "visual_embedding_dim": 16}),
    "x-clip": Row("XCLIPModel", clip_video, {
        "text_config": CLIP_TEXT, "projection_dim": 32, "prompt_num_attention_heads": 4, "prompt_layers": 1,
        "vision_config": {**PATCHES, "num_frames": 4, "mit_hidden_size": 32, "mit_intermediate_size": 64,
                          "mit_num_attention_heads": 4, "mit_num_hidden_layers": 1}}),
}  # fmt: skip
