"""Models of images and of videos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from .inputs import BATCH, Inputs, image, video, wide_image
from .rows import BODY, PATCHES, Row

STAGES: dict[str, Any] = {"hidden_sizes": [8, 16], "depths": [1, 1]}
RESNET: dict[str, Any] = {**STAGES, "embedding_size": 8, "model_type": "resnet", "out_features": ["stage1", "stage2"]}
FOUR = {"depths": [1, 1, 1, 1], "hidden_sizes": [8, 16, 16, 16]}
WINDOWS = {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4}
FRAMES = {**PATCHES, "num_frames": 4}
DETECTOR = {
    "d_model": 32,
    "num_queries": 5,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "num_labels": 3,
    "backbone_config": RESNET,
    "use_timm_backbone": False,
    "use_pretrained_backbone": False,
    "backbone": None,
}
SEGMENTS = {
    "num_encoder_blocks": 4,
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 8, 16, 16],
    "num_attention_heads": [1, 1, 2, 2],
    "sr_ratios": [4, 2, 1, 1],
    "decoder_hidden_size": 16,
}
DPT = {"neck_hidden_sizes": [8, 8, 16, 16], "fusion_hidden_size": 16, "reassemble_factors": [4, 2, 1, 0.5]}
DINO = {
    **PATCHES,
    "num_hidden_layers": 4,
    "model_type": "dinov2",
    "out_indices": [1, 2, 3, 4],
    "reshape_hidden_states": False,
}


def frames() -> Inputs:
    return {"pixel_values_videos": torch.randn(1, 4, 3, 32, 32)}


def prompted() -> Inputs:
    """An image and two points on it."""
    points = torch.randint(0, 32, (1, 1, 2, 2)).float()
    return {**image(batch=1), "input_points": points, "input_labels": torch.ones(1, 1, 2, dtype=torch.int64)}


def noisy() -> Inputs:
    """An image and the noise by which patches are hidden."""
    return {**image(), "noise": torch.rand(BATCH, 16)}


VISION: Mapping[str, Row] = {
    "aimv2": Row("Aimv2VisionModel", image, PATCHES),
    "beit": Row("BeitModel", image, {**PATCHES, "use_relative_position_bias": True, "layer_scale_init_value": 0.1}),
    "bit": Row("BitModel", image, {"embedding_size": 8, **FOUR, "num_groups": 4}),
    "conditional-detr": Row("ConditionalDetrForObjectDetection", wide_image, DETECTOR),
    "convnext": Row("ConvNextModel", image, FOUR),
    "convnext-v2": Row("ConvNextV2Model", image, FOUR),
    "cvt": Row("CvtModel", wide_image, {"embed_dim": [8, 16, 16], "num_heads": [1, 2, 2], "depth": [1, 2, 3]}),
    "data2vec-vision": Row("Data2VecVisionModel", image, PATCHES),
    "deformable-detr": Row(
        "DeformableDetrForObjectDetection", wide_image, {**DETECTOR, "num_feature_levels": 2, "decoder_layers": 2}
    ),
    "deit": Row("DeiTModel", image, PATCHES),
    "depth-anything": Row(
        "DepthAnythingForDepthEstimation",
        image,
        {**DPT, "backbone_config": DINO, "reassemble_hidden_size": 32, "patch_size": 8, "head_hidden_size": 8},
    ),
    "detr": Row("DetrForObjectDetection", wide_image, DETECTOR),
    "dinov2": Row("Dinov2Model", image, PATCHES),
    "dinov2-registers": Row("Dinov2WithRegistersModel", image, PATCHES),
    "dinov3-convnext": Row("DINOv3ConvNextModel", image, FOUR),
    "dinov3-vit": Row("DINOv3ViTModel", image, PATCHES),
    "dpt": Row(
        "DPTForDepthEstimation", image, {**PATCHES, **DPT, "num_hidden_layers": 4, "backbone_out_indices": [0, 1, 2, 3]}
    ),
    "efficientnet": Row(
        "EfficientNetModel",
        image,
        {
            "kernel_sizes": [3, 5], "in_channels": [8, 8], "out_channels": [8, 16], "strides": [1, 2],
            "num_block_repeats": [1, 1], "expand_ratios": [1, 4], "depthwise_padding": [], "hidden_dim": 320,
            "width_coefficient": 0.25, "depth_coefficient": 0.5, "image_size": 32,
        },
    ),
    "focalnet": Row(
        "FocalNetModel",
        image,
        {"image_size": 32, "patch_size": 4, "embed_dim": 8, "depths": [1, 1], "focal_levels": [2, 2],
         "focal_windows": [3, 3], "hidden_sizes": [8, 16]},
    ),
    "glpn": Row("GLPNForDepthEstimation", image, SEGMENTS),
    "hgnet-v2": Row("HGNetV2ForImageClassification", wide_image, {"num_labels": 3}),
    "hiera": Row(
        "HieraModel",
        image,
        {"embed_dim": 8, "image_size": [32, 32], "patch_stride": [4, 4], "depths": [1, 1, 1], "num_heads": [1, 2, 4],
         "query_stride": [2, 2], "masked_unit_size": [4, 4], "num_query_pool": 2},
    ),
    "ijepa": Row("IJepaModel", image, PATCHES),
    "levit": Row(
        "LevitModel",
        wide_image,
        {"image_size": 64, "hidden_sizes": [16, 24, 32], "num_attention_heads": [2, 2, 2], "depths": [1, 1, 1],
         "key_dim": [8, 8, 8]},
    ),
    "mask2former": Row(
        "Mask2FormerModel",
        wide_image,
        {"backbone_config": {**WINDOWS, "model_type": "swin", "image_size": 64, "depths": [1, 1, 1, 1],
                             "num_heads": [2, 2, 2, 2], "out_features": ["stage1", "stage2", "stage3", "stage4"]},
         "hidden_dim": 32, "feature_size": 32, "mask_feature_size": 32, "encoder_layers": 1, "decoder_layers": 2,
         "encoder_feedforward_dim": 32, "dim_feedforward": 32, "num_attention_heads": 4, "num_queries": 5,
         "num_labels": 3},
    ),
    "maskformer-swin": Row("MaskFormerSwinModel", image, WINDOWS, config="MaskFormerSwinConfig"),
    "mobilenet-v1": Row("MobileNetV1Model", image, {"depth_multiplier": 0.25, "image_size": 32}),
    "mobilenet-v2": Row("MobileNetV2Model", image, {"depth_multiplier": 0.25, "image_size": 32}),
    "mobilevit": Row(
        "MobileViTModel",
        image,
        {"image_size": 32, "hidden_sizes": [16, 16, 24], "neck_hidden_sizes": [8, 8, 16, 16, 16, 16, 32],
         "num_attention_heads": 4},
    ),
    "mobilevit-v2": Row("MobileViTV2Model", wide_image, {"image_size": 64, "width_multiplier": 0.25}),
    "pixio": Row("PixioModel", image, PATCHES),
    "poolformer": Row("PoolFormerModel", image, FOUR),
    "pvt": Row("PvtModel", image, {"image_size": 32, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1],
                                   "num_attention_heads": [1, 2, 2, 2], "sequence_reduction_ratios": [2, 2, 1, 1]}),
    "pvt-v2": Row("PvtV2Model", image, {"image_size": 32, "hidden_sizes": [8, 16, 16, 16], "depths": [1, 1, 1, 1],
                                        "num_attention_heads": [1, 2, 2, 2]}),
    "regnet": Row("RegNetModel", image, {**STAGES, "embedding_size": 8, "groups_width": 8}),
    "resnet": Row("ResNetModel", image, {**STAGES, "embedding_size": 8}),
    "rt-detr": Row(
        "RTDetrModel",
        wide_image,
        {"backbone_config": {"model_type": "rt_detr_resnet", "embedding_size": 8, "layer_type": "basic", **FOUR,
                             "out_features": ["stage2", "stage3", "stage4"]},
         "encoder_hidden_dim": 32, "encoder_in_channels": [16, 16, 16], "encoder_layers": 1, "encoder_ffn_dim": 32,
         "encoder_attention_heads": 4, "d_model": 32, "num_queries": 5, "decoder_in_channels": [32, 32, 32],
         "decoder_layers": 1, "decoder_ffn_dim": 32, "decoder_attention_heads": 4, "num_denoising": 0, "num_labels": 3},
    ),
    "sam": Row(
        "SamModel",
        prompted,
        {"vision_config": {**PATCHES, "mlp_dim": 64, "output_channels": 16, "num_pos_feats": 8, "window_size": 2,
                           "global_attn_indexes": [1]},
         "prompt_encoder_config": {"hidden_size": 16, "image_size": 32, "patch_size": 8, "mask_input_channels": 4},
         "mask_decoder_config": {"hidden_size": 16, "mlp_dim": 32, "num_attention_heads": 2, "num_hidden_layers": 1,
                                 "iou_head_hidden_dim": 16}},
    ),
    "segformer": Row("SegformerForSemanticSegmentation", wide_image, SEGMENTS),
    "swiftformer": Row("SwiftFormerModel", wide_image, {"image_size": 64, "depths": [1, 1, 1, 1],
                                                        "embed_dims": [8, 16, 16, 16]}),
    "swin": Row("SwinModel", image, WINDOWS),
    "swin-v2": Row("Swinv2Model", image, WINDOWS),
    "swin2sr": Row("Swin2SRForImageSuperResolution", image, {**WINDOWS, "patch_size": 1, "upscale": 2}),
    "textnet": Row("TextNetModel", wide_image, {}),
    "timesformer": Row("TimesformerModel", video, FRAMES),
    "upernet": Row(
        "UperNetForSemanticSegmentation",
        wide_image,
        {"backbone_config": {"model_type": "convnext", **FOUR,
                             "out_features": ["stage1", "stage2", "stage3", "stage4"]},
         "hidden_size": 16, "auxiliary_in_channels": 16, "auxiliary_channels": 8, "pool_scales": [1, 2],
         "num_labels": 3},
    ),
    "videomae": Row("VideoMAEModel", video, FRAMES),
    "vit": Row("ViTModel", image, PATCHES),
    "vit-mae": Row("ViTMAEModel", noisy, {**PATCHES, "mask_ratio": 0.5}),
    "vit-msn": Row("ViTMSNModel", image, PATCHES),
    "vitdet": Row("VitDetModel", image, {**PATCHES, "window_size": 2, "window_block_indices": [0]}),
    "vitpose": Row(
        "VitPoseForPoseEstimation",
        image,
        {"backbone_config": {**BODY, "model_type": "vitpose_backbone", "image_size": [32, 32], "patch_size": [8, 8],
                             "out_indices": [2], "num_experts": 1}, "num_labels": 3},
    ),
    "vivit": Row("VivitModel", video, {**FRAMES, "tubelet_size": [2, 8, 8]}),
    "vjepa2": Row(
        "VJEPA2Model",
        frames,
        {**BODY, "crop_size": 32, "patch_size": 8, "frames_per_clip": 4, "mlp_ratio": 2, "pred_hidden_size": 24,
         "pred_num_attention_heads": 4, "pred_num_hidden_layers": 1, "pred_num_mask_tokens": 2},
    ),
    "yolos": Row("YolosForObjectDetection", image, {**PATCHES, "image_size": [32, 32], "num_detection_tokens": 5}),
}  # fmt: skip
