"""Machines as files that run or load without tapehead: ONNX, torch.export and safetensors."""
