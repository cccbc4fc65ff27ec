"""What all wire formats share: checked bodies, messages, tools, and settings of decodes."""
